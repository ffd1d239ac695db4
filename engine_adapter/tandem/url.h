// The name of a tandem-engine, taken apart.
//
//   tandem://HOST:PORT, http://HOST:PORT, unix:///PATH    its HTTP server
//   …?transport=tcp                                       weights go over TCP, although it is on this host
//   …?connections=N                                       for data, over TCP; default 8
//   …?pace=500MB                                          a second at most, over TCP (KB, MB, GB; decimal)
#pragma once

#include <string>

#include "engine_adapter/transport/tcp/dial.h"

namespace tandem::engine {

struct TandemUrl {
    std::string http;  // of its server
    bool tcp = false;  // asked for
    TcpOptions options;
};

// Throws BadInput naming the option and what it may be.
TandemUrl parse_tandem_url(const std::string& name);

}  // namespace tandem::engine
