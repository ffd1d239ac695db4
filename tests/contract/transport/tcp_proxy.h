// A TCP proxy that misbehaves when it is told to: between a trainer's data connections and an engine. What it does, it
// does from the n-th byte on that it has carried towards the engine, over all connections.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "common/file_descriptor.h"

namespace tandem::test {

enum class Mischief : std::uint8_t {
    none,
    cut,     // closes the connection
    stall,   // takes and carries nothing any more
    corrupt  // flips a bit, once
};

class TcpProxy {
  public:
    explicit TcpProxy(int to_port) : to_port_(to_port) {
        listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in at = loopback(0);
        ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at));
        ::listen(listener_.get(), 64);
        socklen_t length = sizeof(at);
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &length);
        port_ = ntohs(at.sin_port);
        thread_ = std::thread([this] { accept_all(); });
    }
    ~TcpProxy() {
        stopping_ = true;
        thread_.join();
        for (std::thread& carrier : carriers_) carrier.join();
    }
    TcpProxy(const TcpProxy&) = delete;
    TcpProxy& operator=(const TcpProxy&) = delete;

    int port() const { return port_; }
    int accepted() const { return accepted_; }
    // The next so many connections are closed: before the engine's greeting, or when they say hello.
    void send_away(int connections, bool after_greeting = false) {
        after_greeting_ = after_greeting;
        to_send_away_ = connections;
    }
    void misbehave(Mischief how, std::uint64_t after_bytes) {
        carried_ = 0;
        after_ = after_bytes;
        mischief_ = how;
    }

  private:
    static sockaddr_in loopback(int port) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(static_cast<std::uint16_t>(port));
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return at;
    }
    static bool readable(int fd) {
        pollfd one{fd, POLLIN, 0};
        return ::poll(&one, 1, 10) > 0;
    }
    void accept_all() {
        while (!stopping_) {
            if (!readable(listener_.get())) continue;
            FileDescriptor client(::accept(listener_.get(), nullptr, nullptr));
            FileDescriptor engine(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            const sockaddr_in to = loopback(to_port_);
            if (::connect(engine.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) continue;
            ++accepted_;
            const bool sent_away = to_send_away_ > 0;
            if (sent_away) --to_send_away_;
            if (sent_away && !after_greeting_) continue;
            carriers_.emplace_back([this, client = std::move(client), engine = std::move(engine), sent_away] {
                while (!stopping_ && carry(engine.get(), client.get(), false) &&
                       (sent_away ? !readable(client.get()) : carry(client.get(), engine.get(), true))) {
                }
            });
        }
    }
    // What is there now; false: the connection ends.
    bool carry(int from, int to, bool towards_engine) {
        if (towards_engine && mischief_ == Mischief::stall && carried_ >= after_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            return true;
        }
        pollfd one{from, POLLIN, 0};
        if (::poll(&one, 1, towards_engine ? 5 : 0) <= 0) return true;
        std::vector<char> bytes(4096);
        const ssize_t n = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (n <= 0) return false;
        if (towards_engine) {
            const std::uint64_t before = carried_.fetch_add(static_cast<std::uint64_t>(n));
            const std::uint64_t after = before + static_cast<std::uint64_t>(n);
            if (mischief_ == Mischief::cut && after > after_) return false;
            if (mischief_ == Mischief::corrupt && before <= after_ && after_ < after) {
                bytes[after_ - before] = static_cast<char>(bytes[after_ - before] ^ 1);
                mischief_ = Mischief::none;
            }
        }
        for (ssize_t sent = 0; sent < n;) {
            const ssize_t step =
                ::send(to, bytes.data() + sent, static_cast<std::size_t>(n - sent), MSG_NOSIGNAL);
            if (step <= 0) return false;
            sent += step;
        }
        return true;
    }

    const int to_port_;
    int port_ = 0;
    FileDescriptor listener_;
    std::atomic<bool> stopping_{false};
    std::atomic<int> accepted_{0}, to_send_away_{0};
    std::atomic<bool> after_greeting_{false};
    std::atomic<std::uint64_t> carried_{0}, after_{0};
    std::atomic<Mischief> mischief_{Mischief::none};
    std::list<std::thread> carriers_;
    std::thread thread_;
};

}  // namespace tandem::test
