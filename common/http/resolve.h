// The addresses of a name, within a deadline: the system's resolver takes as long as it likes and cannot be stopped.
#pragma once

#include <utility>  // before Asio: Boost 1.74 uses std::exchange without including it

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <string>
#include <vector>

#include "common/deadline.h"

namespace tandem::http {

using Addresses = std::vector<boost::asio::ip::tcp::endpoint>;
using Lookup = std::function<Addresses(const std::string& host, const std::string& port)>;

// Asks the system; blocks for as long as that takes. Throws boost::system::system_error.
Addresses look_up(const std::string& host, const std::string& port);

// As look_up, but throws asio::error::timed_out when the deadline passes first. The lookup then goes on in a thread of
// its own, at most one for a name: whoever asks for that name meanwhile waits for the same.
Addresses resolve(const std::string& host, const std::string& port, Deadline deadline,
                  const Lookup& lookup = look_up);

}  // namespace tandem::http
