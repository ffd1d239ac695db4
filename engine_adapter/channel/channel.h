// Framed messages over a stream unix socket in the abstract namespace (no file is left after a crash), with
// file descriptors beside them; without descriptors over TCP too (transport/tcp/handshake.h). A frame:
//
//   bytes   what
//   4       length of the header, little endian, at most kMaxHeaderBytes
//   4       length of the payload, at most kMaxPayloadBytes
//   …       header: one JSON object
//   …       payload: packed binary, meaning given by the header (messages.h)
// Up to kMaxDescriptors file descriptors may travel with the first byte of a frame (SCM_RIGHTS). Anything
// else is malformed: receive throws MalformedMessage and the connection is of no more use.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/device/device.h"
#include "common/error.h"
#include "common/file_descriptor.h"

namespace tandem::engine {

inline constexpr std::size_t kMaxHeaderBytes = 16u << 20;
inline constexpr std::size_t kMaxPayloadBytes = 256u << 20;
inline constexpr std::size_t kMaxDescriptors = 64;

// The peer sent bytes that are not a message.
class MalformedMessage : public ProtocolError {
  public:
    using ProtocolError::ProtocolError;
};

struct Message {
    nlohmann::json header;
    std::vector<std::byte> payload;
    std::vector<FileDescriptor> fds;
};

// Used by one thread at a time. Every wait ends at its deadline (DeadlineExceeded) or when the peer closes
// (TransportError); both name the peer and `phase`.
class Channel {
  public:
    Channel(FileDescriptor socket, std::string peer);
    // "unix-abstract:NAME". Refuses a peer that runs as another user.
    static Channel connect(const std::string& address, Deadline deadline);

    // The descriptors stay the caller's.
    void send(const nlohmann::json& header, const std::string& phase, Deadline deadline,
              ConstSpan payload = {}, std::span<const int> fds = {});
    Message receive(const std::string& phase, Deadline deadline);
    // True when a message, or the end of the connection, can be received.
    bool readable() const;
    bool wait_readable(std::chrono::nanoseconds time) const;  // waits for it, at most so long
    bool hung_up() const;  // the peer; what it sent before may still be unread

    // When this descriptor becomes readable every wait throws TransportError ("stopping"). Borrowed.
    void interrupt_with(int fd) { interrupt_ = fd; }
    const std::string& peer() const { return peer_; }
    int fd() const { return socket_.get(); }

  private:
    void wait_for(short events, const std::string& phase, Deadline deadline) const;
    void require_in_time(bool unfinished, const std::string& phase, Deadline deadline) const;
    void read_exactly(std::byte* data, std::size_t bytes, std::vector<FileDescriptor>& fds,
                      const std::string& phase, Deadline deadline);

    FileDescriptor socket_;
    std::string peer_;
    int interrupt_ = -1;
};

// The name of a socket in the abstract namespace: "unix-abstract:NAME".
struct AbstractAddress {
    sockaddr_un address{};
    socklen_t length = 0;
};

// Throws InvalidArgument: not of this form, empty or too long a name.
AbstractAddress parse_abstract_address(const std::string& address);

// A listening socket under a fresh random name "tandem-PID-RANDOM".
struct Listener {
    FileDescriptor socket;  // non-blocking
    std::string address;    // "unix-abstract:NAME"
};
Listener listen_abstract();

// Throws TransportError unless the process at the other end runs as this user.
void require_same_user(int socket, const std::string& peer);

}  // namespace tandem::engine
