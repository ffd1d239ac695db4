// A plain TCP connection for tests: sends any bytes, reads what comes back.
#pragma once

#include <string>

namespace tandem::http {

class RawConnection {
  public:
    explicit RawConnection(int port, int receive_buffer = 0);  // 0: the system's
    ~RawConnection();
    RawConnection(const RawConnection&) = delete;
    RawConnection& operator=(const RawConnection&) = delete;

    void send(const std::string& bytes) const;
    // Reads until `needle` was seen, the peer closed, or 5 s passed; returns everything read by this call.
    std::string read_until(const std::string& needle) const;
    void read_some(std::size_t bytes) const;
    std::size_t count_to_end() const;  // bytes
    std::string read_to_end() const { return read_until("\x01never\x01"); }
    bool closed_by_peer() const;  // waits up to 5 s for the end of the stream
    bool open() const;            // as far as is known now
    void end_sending() const;     // half of a close, as nc -N does it

  private:
    int fd_ = -1;
};

// A listening socket that accepts nothing: connections to it are made and then never answered.
class SilentListener {
  public:
    SilentListener();
    ~SilentListener();
    SilentListener(const SilentListener&) = delete;
    SilentListener& operator=(const SilentListener&) = delete;
    int port() const { return port_; }
    int accept() const;  // the caller closes it

  private:
    int fd_ = -1;
    int port_ = 0;
};

}  // namespace tandem::http
