#include "engine_adapter/transport/tcp/dial.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "common/comm/host_identity.h"
#include "common/error.h"
#include "common/host_port.h"
#include "common/http/resolve.h"
#include "common/ops/batched_copy.h"

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

// One connection on its way, and whom to blame.
struct Dialling {
    FileDescriptor socket;
    const std::string& peer;
    const std::string& phase;
    Deadline deadline;
    comm::Nonce engine{}, trainer = comm::random_nonce();

    [[noreturn]] void fail(const std::string& why) const { throw TransportError(peer, phase, why, true); }

    void wait_for(short events, const char* what) const {
        for (;;) {
            pollfd fd{socket.get(), events, 0};
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
            const int ready = ::poll(&fd, 1, static_cast<int>(std::min<long long>(left, 3'600'000)));
            if (ready > 0) return;
            if (ready < 0 && errno != EINTR) throw SystemError("poll", errno);
            if (deadline.passed()) throw DeadlineExceeded(peer, phase, what, true);
        }
    }
    void start(const http::Addresses::value_type& to) {
        socket.reset(::socket(to.data()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!socket) throw SystemError("socket", errno);
        if (::connect(socket.get(), to.data(), static_cast<socklen_t>(to.size())) != 0 &&
            errno != EINPROGRESS)
            fail(std::strerror(errno));
    }
    void finish_connect() const {
        wait_for(POLLOUT, "nobody answers there");
        int error = 0;
        socklen_t length = sizeof(error);
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
        if (error != 0) fail(std::strerror(error));
    }
    std::string read(std::size_t bytes) const {
        std::string text(bytes, '\0');
        for (std::size_t got = 0; got < bytes;) {
            const ssize_t n = ::recv(socket.get(), text.data() + got, bytes - got, 0);
            if (n > 0) {
                got += static_cast<std::size_t>(n);
            } else if (n == 0) {
                fail("it closed the connection before it let anybody in");
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                wait_for(POLLIN, "it accepts connections and says nothing");
            } else if (errno != EINTR) {
                fail(std::strerror(errno));
            }
        }
        return text;
    }
    void say_hello(Kind kind, const std::string& secret, bool unauthenticated) {
        const Greeting greeted = parse_greeting(read(kGreetingBytes));
        engine = greeted.engine;
        if (kind == Kind::control && greeted.asks == Asks::channel)
            fail(
                "the engine has no key, so it takes weights only from its own host: start it with "
                "--admin-api-key");
        if (kind == Kind::control && greeted.asks == Asks::nothing && !secret.empty() && !unauthenticated)
            fail(
                "a key is set here (TANDEM_API_KEY), and what answers there asks for none: it may not be the "
                "engine. Start the engine with --admin-api-key; or leave the key out, or say "
                "?unauthenticated=1, to give the weights to whoever answers");
        const std::string bytes =
            hello(kind, secret_of(kind, secret_for(greeted.asks, kind, secret)), engine, trainer);
        // The socket's buffer is empty, and larger.
        if (::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
            static_cast<ssize_t>(bytes.size()))
            fail(std::strerror(errno));
        asks = greeted.asks;
    }
    void hear_verdict(Kind kind, const std::string& secret) const {
        if (accepted(read(kVerdictBytes), kind, secret_of(kind, secret_for(asks, kind, secret)), engine,
                     trainer))
            return;
        fail(kind == Kind::control ? "the engine asks for another key: give its admin key (TANDEM_API_KEY)"
                                   : "the engine does not know this push any more");
    }
    static std::string secret_for(Asks asks, Kind kind, const std::string& secret) {
        return kind == Kind::control && asks == Asks::nothing ? std::string() : secret;
    }
    Asks asks = Asks::key;
};

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
    const std::string id = comm::host_identity();
    return ops::to_hex(ops::checksum({reinterpret_cast<const std::byte*>(id.data()), id.size()}));
}

std::string peer_name(int socket) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    char text[INET6_ADDRSTRLEN] = "?";
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "?";
    if (address.ss_family == AF_INET6) {
        const auto* in = reinterpret_cast<const sockaddr_in6*>(&address);
        ::inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof(text));
        return to_host_port(text, ntohs(in->sin6_port));
    }
    const auto* in = reinterpret_cast<const sockaddr_in*>(&address);
    ::inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
    return to_host_port(text, ntohs(in->sin_port));
}

std::vector<FileDescriptor> dial(const TcpAddress& to, Kind kind, const std::string& secret, int count,
                                 const TcpOptions& options, const std::string& peer, const std::string& phase,
                                 Deadline deadline) {
    http::Addresses addresses;
    try {
        addresses = http::resolve(to.host, to.port, deadline);
    } catch (const boost::system::system_error& error) {
        throw TransportError(peer, phase, fmt::format("'{}' has no address: {}", to.host, error.what()),
                             true);
    }
    std::vector<Dialling> all;
    for (std::size_t tried = 0;; ++tried) {  // the first address that answers
        require(!addresses.empty(), "'{}' has no address", to.host);
        try {
            all.clear();
            for (int i = 0; i < count; ++i)
                all.push_back({{}, peer, phase, deadline}), all.back().start(addresses[tried]);
            for (const Dialling& one : all) one.finish_connect();
            break;
        } catch (const DeadlineExceeded&) {
            throw;
        } catch (const TransportError&) {
            if (tried + 1 == addresses.size()) throw;
        }
    }
    for (Dialling& one : all) one.say_hello(kind, secret, options.unauthenticated);
    std::vector<FileDescriptor> sockets;
    for (Dialling& one : all) {
        one.hear_verdict(kind, secret);
        set_options(one.socket.get(), kind);
        make_blocking(one.socket.get());
        if (kind == Kind::data && options.pace_bytes_per_s > 0)
            pace(one.socket.get(), options.pace_bytes_per_s / count);
        sockets.push_back(std::move(one.socket));
    }
    return sockets;
}

}  // namespace tcp
}  // namespace tandem::engine
