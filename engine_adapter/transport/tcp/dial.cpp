#include "engine_adapter/transport/tcp/dial.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "common/dial.h"
#include "common/error.h"
#include "common/host_port.h"
#include "common/identity/host_identity.h"
#include "common/ops/batched_copy.h"
#include "common/socket_address.h"

namespace tandem::engine {

TcpAddress parse_tcp_address(const std::string& text) {
    HostPort parsed = parse_host_port(text);
    return {std::move(parsed.host), std::to_string(parsed.port)};
}

namespace tcp {
namespace {

// Bytes that a data connection takes beyond what is on the way: those behind them go to whichever connection is free. The
// buffer itself is left to the system, which makes it as large as the link asks for: a size that is asked for stops at
// net.core.wmem_max, on most hosts far below a bandwidth-delay product, and stays there.
constexpr int kMostUnsent = 1 << 20;

// Between two tries, where the engine had no place: at random around this, and twice as long each time up to the longest.
constexpr std::chrono::milliseconds kFirstPause{10}, kLongestPause{80};

// One connection in its handshake, and whom to blame.
struct Handshake {
    FileDescriptor socket;
    const std::string& peer;
    const std::string& phase;
    Deadline deadline;
    Nonce engine{}, trainer = random_nonce();
    Asks asks = Asks::key;
    std::string sent_away = {};  // before the verdict; there may be a place the next time

    [[noreturn]] void fail(const std::string& why) const { throw TransportError(peer, phase, why, true); }

    void wait_readable() const {
        for (;;) {
            pollfd fd{socket.get(), POLLIN, 0};
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
            const int ready = ::poll(&fd, 1, static_cast<int>(std::min<long long>(left, 3'600'000)));
            if (ready > 0) return;
            if (ready < 0 && errno != EINTR) throw SystemError("poll", errno);
            if (deadline.passed())
                throw DeadlineExceeded(peer, phase, "it accepts connections and says nothing", true);
        }
    }
    // False: it is sent away.
    bool is_sent_away(int error) {
        if (error != ECONNRESET && error != EPIPE) fail(std::strerror(error));
        sent_away = std::strerror(error);
        return false;
    }
    bool read(std::size_t bytes, std::string& text) {
        text.assign(bytes, '\0');
        for (std::size_t got = 0; got < bytes;) {
            const ssize_t n = ::recv(socket.get(), text.data() + got, bytes - got, 0);
            if (n > 0) {
                got += static_cast<std::size_t>(n);
            } else if (n == 0) {
                sent_away = "it closed the connection";
                return false;
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                wait_readable();
            } else if (errno != EINTR) {
                return is_sent_away(errno);
            }
        }
        return true;
    }
    bool say_hello(Kind kind, const std::string& secret, bool unauthenticated) {
        std::string bytes;
        if (!read(kGreetingBytes, bytes)) return false;
        const Greeting greeted = parse_greeting(bytes);
        engine = greeted.engine;
        asks = greeted.asks;
        if (kind == Kind::control && asks == Asks::channel)
            fail(
                "the engine has no key, so it takes weights only from its own host: start it with "
                "--admin-api-key");
        if (kind == Kind::control && asks == Asks::nothing && !secret.empty() && !unauthenticated)
            fail(
                "a key is set here (TANDEM_API_KEY), and what answers there asks for none: it may not be the "
                "engine. Start the engine with --admin-api-key; or leave the key out, or say "
                "?unauthenticated=1, to give the weights to whoever answers");
        bytes = hello(kind, secret_of(kind, secret_for(kind, secret)), engine, trainer);
        // The socket's buffer is empty, and larger.
        return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0 || is_sent_away(errno);
    }
    bool hear_verdict(Kind kind, const std::string& secret) {
        std::string bytes;
        if (!read(kVerdictBytes, bytes)) return false;
        if (accepted(bytes, kind, secret_of(kind, secret_for(kind, secret)), engine, trainer)) return true;
        fail(kind == Kind::control ? "the engine asks for another key: give its admin key (TANDEM_API_KEY)"
                                   : "the engine does not know this push any more, or has no thread left for "
                                     "a connection of it");
    }
    std::string secret_for(Kind kind, const std::string& secret) const {
        return kind == Kind::control && asks == Asks::nothing ? std::string() : secret;
    }
};

// Adds those of `count` connections that are let in. Returns how the others were sent away, or nothing.
std::string try_once(const Destination& engine, Kind kind, const std::string& secret, int count,
                     const TcpOptions& options, Deadline deadline, std::vector<FileDescriptor>& let_in) {
    std::vector<Handshake> handshakes;
    for (FileDescriptor& socket : tandem::dial(engine, deadline, count))
        handshakes.push_back({std::move(socket), engine.peer, engine.phase, deadline});
    for (Handshake& one : handshakes) one.say_hello(kind, secret, options.unauthenticated);
    std::string sent_away;
    for (Handshake& one : handshakes) {
        if (one.sent_away.empty() && one.hear_verdict(kind, secret))
            let_in.push_back(std::move(one.socket));
        else
            sent_away = one.sent_away;
    }
    return sent_away;
}

// From half of it to one and a half.
std::chrono::milliseconds around(std::chrono::milliseconds pause) {
    return pause / 2 + pause * random_nonce()[0] / 255;
}

int port_of(const TcpAddress& to) {
    return parse_host_port(to_host_port(to.host, to.port)).port;
}

void pace(int socket, double bytes_per_s) {
    const auto rate = static_cast<std::uint64_t>(std::max(1.0, bytes_per_s));
    if (::setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate)) != 0)
        throw SystemError("SO_MAX_PACING_RATE", errno);
}

}  // namespace

void make_blocking(int socket) {
    ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) & ~O_NONBLOCK);
}

void set_options(int socket, Kind kind) {
    const auto set = [socket](int level, int option, int value) {
        ::setsockopt(socket, level, option, &value, sizeof(value));
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
    if (kind == Kind::control) set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
    if (kind == Kind::data) set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kMostUnsent);
}

std::string host_fingerprint() {
    const std::string id = host_identity();
    return ops::to_hex(ops::checksum({reinterpret_cast<const std::byte*>(id.data()), id.size()}));
}

std::string peer_name(int socket) {
    try {
        return SocketAddress::of_other_end(socket).host_port();
    } catch (const SystemError&) {  // it has gone
        return "?";
    }
}

std::vector<FileDescriptor> dial(const TcpAddress& to, Kind kind, const std::string& secret, int count,
                                 const TcpOptions& options, const std::string& peer, const std::string& phase,
                                 Deadline deadline) {
    const Destination engine{to.host, port_of(to), peer, phase};
    std::vector<FileDescriptor> sockets;
    std::string sent_away;
    int times = 0;
    const auto too_late = [&] {
        const std::string why = fmt::format(
            "{} before it let anybody in, {} times, until the deadline: it has no place for "
            "another connection, or what answers there is not the engine",
            sent_away, times);
        return DeadlineExceeded(peer, phase, why, true);
    };
    for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
        const int missing = count - static_cast<int>(sockets.size());
        std::string again;
        try {
            again = try_once(engine, kind, secret, missing, options, deadline, sockets);
        } catch (const DeadlineExceeded&) {
            if (times == 0) throw;
            throw too_late();  // in the middle of one more
        }
        if (again.empty()) break;
        sent_away = again;
        ++times;
        const auto wait = around(pause);
        if (deadline.left() < wait) throw too_late();
        std::this_thread::sleep_for(wait);
    }
    for (const FileDescriptor& socket : sockets) {
        set_options(socket.get(), kind);
        make_blocking(socket.get());
        if (kind == Kind::data && options.pace_bytes_per_s > 0)
            pace(socket.get(), options.pace_bytes_per_s / count);
    }
    return sockets;
}

}  // namespace tcp
}  // namespace tandem::engine
