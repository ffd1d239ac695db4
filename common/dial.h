// How TCP connections are made, all of them here (lint.one_place): a name is looked up and its addresses are tried within a
// deadline. One that says nothing holds nobody up: the next one's turn comes after an even share of the time that is
// left, at most a quarter of a second, and whichever answers first is taken.
#pragma once

#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/file_descriptor.h"
#include "common/resolve.h"

namespace tandem {

struct Destination {
    std::string host;  // a name, or an address without brackets
    int port = 0;
    // Whom an error blames, and for what: "engine tcp://node7:9000", "connect".
    std::string peer;
    std::string phase;
};

struct Dialled {
    std::vector<FileDescriptor> sockets;  // all to one address; they do not block, and no child inherits them
    std::string why;                      // there are none: each address, and what happened
    bool late = false;                    // because the deadline has passed
};

// `count` connections, or why not. Blocks until the deadline. Throws SystemError: no thread for a look-up.
Dialled try_to_dial(const std::string& host, int port, Deadline deadline, int count = 1,
                    const Lookup& lookup = look_up);

// As try_to_dial; throws TransportError (no such name, nothing listens there) or DeadlineExceeded where there are none, both
// retryable.
std::vector<FileDescriptor> dial(const Destination& to, Deadline deadline, int count = 1,
                                 const Lookup& lookup = look_up);

}  // namespace tandem
