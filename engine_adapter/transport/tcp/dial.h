// The trainer's connections to an engine's data plane, made and proven within a deadline.
#pragma once

#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/file_descriptor.h"
#include "engine_adapter/transport/tcp/handshake.h"

namespace tandem::engine {

struct TcpOptions {
    int connections = 8;  // for data, to each engine rank
    // At most so many bytes a second to each engine rank, evenly spaced by the kernel: what is left of the link is its
    // other traffic's. 0: as fast as the network lets.
    double pace_bytes_per_s = 0;
    // Whether a trainer that has a key gives its weights to an engine that says it asks for none, which may be whoever has
    // taken the engine's port.
    bool unauthenticated = false;
};

// Where an engine listens.
struct TcpAddress {
    std::string host;  // without brackets
    std::string port;
};
TcpAddress parse_tcp_address(const std::string& text);  // common/host_port.h; throws BadInput

namespace tcp {

// `count` sockets, blocking, on which both ends have proven that they know `secret` (the engine's key, or a token).
// A connection that is closed before the verdict is made again, until the deadline: the engine had no place. Throws
// TransportError (nothing listens, refused), DeadlineExceeded; both name `peer` and `phase`.
std::vector<FileDescriptor> dial(const TcpAddress& to, Kind kind, const std::string& secret, int count,
                                 const TcpOptions& options, const std::string& peer, const std::string& phase,
                                 Deadline deadline);

// For both ends: what is small is sent at once, a data connection takes little more than it can send, and a peer that is cut off is noticed after some 20 s also while
// nothing is said; a control connection also ends when what was sent is not acknowledged for 30 s.
void set_options(int socket, Kind kind);
void make_blocking(int socket);

// Equal where two processes can share memory (host_identity), and tells strangers nothing of the host.
std::string host_fingerprint();

// "10.0.0.1:4711", "[::1]:4711".
std::string peer_name(int socket);

}  // namespace tcp

}  // namespace tandem::engine
