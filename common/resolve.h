// The addresses of a name, within a deadline: the system's resolver takes as long as it likes and cannot be stopped.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/socket_address.h"

namespace tandem {

using Addresses = std::vector<SocketAddress>;
using Lookup = std::function<Addresses(const std::string& host)>;

// Asks the system; blocks for as long as that takes. At least one, each once. Throws BadInput: why there is none.
Addresses look_up(const std::string& host);

// As look_up, with the port in them, but throws DeadlineExceeded naming the host when the deadline passes first. The look-up
// then goes on in a thread of its own, at most one for a name: whoever asks for that name meanwhile waits for the same.
// What is a numeric address already is not looked up, nor is "localhost", which is 127.0.0.1 and ::1 whatever the system makes
// of it. Throws SystemError: there are no more threads.
Addresses resolve(const std::string& host, int port, Deadline deadline, const Lookup& lookup = look_up);

}  // namespace tandem
