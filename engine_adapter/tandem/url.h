// The name of an engine with a receiver of ours, taken apart.
//
//   tandem://HOST:PORT, http://HOST:PORT, unix:///PATH    the HTTP server of a tandem-engine
//   vllm://HOST:PORT                                      a vLLM with our plug-in
//   …?transport=tcp                                       weights go over TCP, although it is on this host
//   …?connections=N                                       for data, over TCP; default 8
//   …?pace=500MB                                          a second at most, over TCP (KB, MB, GB; decimal)
#pragma once

#include <string>

#include "engine_adapter/transport/tcp/dial.h"

namespace tandem::engine {

struct EngineUrl {
    std::string base;      // before the options
    bool options = false;  // there are some
    bool tcp = false;      // asked for
    TcpOptions tcp_options;
};

// Throws BadInput naming the option and what it may be.
EngineUrl parse_engine_url(const std::string& name);

}  // namespace tandem::engine
