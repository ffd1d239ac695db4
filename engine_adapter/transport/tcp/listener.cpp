#include "engine_adapter/transport/tcp/listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "engine_adapter/transport/tcp/dial.h"

namespace tandem::engine {
namespace {

// In a handshake at the same time. So many must come within a round trip to push out a trainer at their own address.
constexpr std::size_t kMostGuests = 4096;
constexpr double kDescriptorsShare = .25;
constexpr int kAcceptedAtOnce = 64;  // between two looks at those who are here

FileDescriptor make_event() {
    FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event) throw SystemError("eventfd", errno);
    return event;
}

ListeningSockets sockets_for(const TcpListen& at) {
    const auto refuse = [&](const std::string& why) {
        throw ConfigError("command line", "--data-listen", to_host_port(at.host, at.port) + ": " + why);
    };
    ListeningSockets all;
    try {
        all = listen_at(at.host, std::stoi(at.port));
    } catch (const BadInput& error) {
        refuse(error.what());
    } catch (const SystemError& error) {
        refuse(error.what());
    }
    if (at.key.empty() && !at.anybody && !all.loopback) {
        refuse(
            "can be reached from other machines, where anybody could push weights: set --admin-api-key, or "
            "say --allow-unauthenticated");
    }
    return all;
}

// A few bytes into a buffer that is empty.
bool send_small(int socket, const std::string& bytes) {
    return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes.size());
}

}  // namespace

TcpListener::TcpListener(const TcpListen& options)
    : options_(options),
      listening_(sockets_for(options)),
      stop_(make_event()),
      ready_(make_event()),
      admission_(within_descriptors(kMostGuests, kDescriptorsShare)) {
    thread_ = Thread("that listens for weights", [this] { run(); });
}

TcpListener::~TcpListener() {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
}

tcp::Asks TcpListener::asks() const {
    if (!options_.key.empty()) return tcp::Asks::key;
    return options_.anybody ? tcp::Asks::nothing : tcp::Asks::channel;
}

void TcpListener::run() {
    for (;;) {
        try {
            if (!serve_next()) return;
        } catch (const std::exception& error) {  // for want of memory
            warnings_.say(error.what());
            guests_.clear();
        }
    }
}

// False: it is to stop.
bool TcpListener::serve_next() {
    std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}};
    for (const ListeningSockets::One& one : listening_.sockets) fds.push_back({one.socket.get(), POLLIN, 0});
    const std::size_t first_guest = fds.size();
    auto soonest = std::chrono::milliseconds(3'600'000);
    for (const Guest& guest : guests_) {
        fds.push_back({guest.socket.get(), POLLIN, 0});
        soonest = std::min(soonest, std::chrono::ceil<std::chrono::milliseconds>(guest.deadline.left()));
    }
    if (::poll(fds.data(), fds.size(), static_cast<int>(soonest.count())) < 0 && errno != EINTR) {
        log_error("data plane: {}", SystemError("poll", errno).what());
        return false;
    }
    if (fds[0].revents != 0) return false;
    std::size_t at = first_guest;
    for (auto guest = guests_.begin(); guest != guests_.end(); ++at) {
        const bool stays =
            guest->socket && (fds[at].revents != 0 ? read_some(*guest) : !guest->deadline.passed());
        guest = stays ? std::next(guest) : guests_.erase(guest);
    }
    for (std::size_t i = 1; i < first_guest; ++i) {
        for (int taken = 0; fds[i].revents != 0 && taken < kAcceptedAtOnce; ++taken) {
            if (!accept_one(fds[i].fd)) break;
        }
    }
    return true;
}

TcpListener::Guest::Guest(FileDescriptor taken, TcpListener& listener)
    : socket(std::move(taken)),
      peer("trainer " + tcp::peer_name(socket.get())),
      deadline(Deadline::after(listener.options_.patience)),
      place(listener.admission_, peer_group(socket.get()), [this] { socket.reset(); }) {}

bool TcpListener::accept_one(int listening) {
    FileDescriptor socket(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) return true;
        if (errno == EAGAIN) return false;
        warnings_.say(SystemError("accept", errno).what());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return false;
    }
    Guest& guest = guests_.emplace_back(std::move(socket), *this);
    if (!send_small(guest.socket.get(), tcp::greeting(asks(), guest.nonce))) guests_.pop_back();
    return true;
}

bool TcpListener::read_some(Guest& guest) {
    const ssize_t n =
        ::recv(guest.socket.get(), guest.said.data() + guest.got, guest.said.size() - guest.got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    guest.got += static_cast<std::size_t>(n);
    if (guest.got < guest.said.size()) return true;
    try {
        if (!judge(guest)) {
            send_small(guest.socket.get(), tcp::refusal_verdict());
            warnings_.say(guest.peer + " does not know the key, or the push that it belongs to");
        }
    } catch (const std::exception& error) {
        warnings_.say(fmt::format("{}: {}", guest.peer, error.what()));
    }
    return false;  // handed on, or refused
}

bool TcpListener::judge(Guest& guest) {
    const tcp::Hello hello = tcp::parse_hello({guest.said.data(), guest.said.size()});
    const std::lock_guard lock(mutex_);
    const bool control = hello.kind == tcp::Kind::control;
    std::optional<JobSecret> secret = token_;
    if (control) {
        secret.reset();
        if (asks() != tcp::Asks::channel) secret.emplace(tcp::secret_of(hello.kind, options_.key));
    }
    if (!secret || !tcp::proven(hello, *secret, guest.nonce)) return false;
    guest.place.prove();  // remembers its address; the place itself goes with the guest
    tcp::set_options(guest.socket.get(), hello.kind);
    if (control) {
        controls_.push_back({std::move(guest.socket), guest.peer});
        const bool sent =
            send_small(controls_.back().socket.get(), tcp::verdict(hello, *secret, guest.nonce));
        if (!sent) return controls_.pop_back(), true;
        ::eventfd_write(ready_.get(), 1);
        return true;
    }
    // Taken first: where that fails, for want of a thread, the trainer hears at once that it is not let in.
    tcp::make_blocking(guest.socket.get());
    const FileDescriptor verdict_goes_to(::fcntl(guest.socket.get(), F_DUPFD_CLOEXEC, 0));
    if (!verdict_goes_to) throw SystemError("fcntl", errno);
    const int socket = verdict_goes_to.get();
    take_({std::move(guest.socket), guest.peer});
    if (!send_small(socket, tcp::verdict(hello, *secret, guest.nonce))) ::shutdown(socket, SHUT_RDWR);
    return true;
}

std::optional<TcpListener::Accepted> TcpListener::take_control() {
    const std::lock_guard lock(mutex_);
    eventfd_t count = 0;
    if (controls_.size() <= 1) ::eventfd_read(ready_.get(), &count);
    if (controls_.empty()) return {};
    Accepted first = std::move(controls_.front());
    controls_.pop_front();
    return first;
}

void TcpListener::expect_data(const std::string& token, std::function<void(Accepted)> take) {
    const std::lock_guard lock(mutex_);
    token_.emplace(tcp::secret_of(tcp::Kind::data, token));
    take_ = std::move(take);
}

void TcpListener::expect_none() {
    const std::lock_guard lock(mutex_);
    token_.reset();
    take_ = {};
}

}  // namespace tandem::engine
