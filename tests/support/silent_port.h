// A port that answers nobody: its listener's queue is full, and the system drops what else comes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/file_descriptor.h"

namespace tandem::test {

class SilentPort {
  public:
    // host: an IPv4 address of this machine. Port 0 takes a free one.
    explicit SilentPort(const std::string& host = "127.0.0.1", int port = 0)
        : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
          first_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in at{};
        socklen_t length = sizeof at;
        at.sin_family = AF_INET;
        at.sin_port = htons(static_cast<std::uint16_t>(port));
        ::inet_pton(AF_INET, host.c_str(), &at.sin_addr);
        auto* const address = reinterpret_cast<sockaddr*>(&at);
        if (::bind(listener_.get(), address, length) != 0 || ::listen(listener_.get(), 0) != 0 ||
            ::getsockname(listener_.get(), address, &length) != 0 ||
            ::connect(first_.get(), address, length) != 0)
            std::abort();
        port_ = ntohs(at.sin_port);
    }
    int port() const { return port_; }
    // From now on there is room for one.
    void make_room() const { FileDescriptor(::accept(listener_.get(), nullptr, nullptr)); }

  private:
    FileDescriptor listener_, first_;
    int port_ = 0;
};

}  // namespace tandem::test
