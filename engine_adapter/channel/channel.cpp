#include "engine_adapter/channel/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>

#include "common/json_text.h"

namespace tandem::engine {
namespace {

static_assert(std::endian::native == std::endian::little);

int poll_timeout(Deadline deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    return static_cast<int>(std::min<long long>(left, 3'600'000));
}

constexpr std::size_t kControlBytes = CMSG_SPACE(kMaxDescriptors * sizeof(int));
// A payload grows as its bytes arrive: an announced length alone allocates little.
constexpr std::size_t kPayloadStep = 4u << 20;
constexpr std::size_t kMostValues = std::size_t{8} << 20;  // of a header, which names every tensor

// --- file descriptors beside a message

// Takes ownership of the descriptors in a received control block.
void take_descriptors(msghdr& message, std::vector<FileDescriptor>& fds) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            fds.emplace_back(fd);
        }
    }
}

void put_descriptors(msghdr& message, std::span<const int> fds, std::span<char> control) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
}

}  // namespace

Channel::Channel(FileDescriptor socket, std::string peer)
    : socket_(std::move(socket)), peer_(std::move(peer)) {}

Channel Channel::connect(const std::string& address, Deadline deadline) {
    const AbstractAddress to = parse_abstract_address(address);
    const std::string peer = "engine " + address;
    for (;;) {
        FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!socket) throw SystemError("socket", errno);
        if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.address), to.length) == 0) {
            require_same_user(socket.get(), peer);
            return Channel(std::move(socket), peer);
        }
        // EAGAIN: the engine's backlog is full.
        if (errno != EAGAIN && errno != EINTR)
            throw TransportError(peer, "connect", std::strerror(errno), true);
        if (deadline.passed())
            throw DeadlineExceeded(peer, "connect", "the engine does not accept connections");
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

// --- waiting

void Channel::wait_for(short events, const std::string& phase, Deadline deadline) const {
    for (;;) {
        std::array<pollfd, 2> fds{pollfd{socket_.get(), events, 0}, pollfd{interrupt_, POLLIN, 0}};
        const int ready = ::poll(fds.data(), interrupt_ >= 0 ? 2 : 1, poll_timeout(deadline));
        if (ready < 0 && errno != EINTR) throw SystemError("poll", errno);
        if (interrupt_ >= 0 && fds[1].revents != 0) throw TransportError(peer_, phase, "stopping");
        if (ready > 0 && fds[0].revents != 0) return;
        require_in_time(true, phase, deadline);
    }
}

// A peer that reads or writes a byte at a time is never waited for long enough to be late.
void Channel::require_in_time(bool unfinished, const std::string& phase, Deadline deadline) const {
    if (unfinished && deadline.passed())
        throw DeadlineExceeded(peer_, phase, "no answer within the deadline", true);
}

bool Channel::readable() const {
    return wait_readable({});
}

bool Channel::wait_readable(std::chrono::nanoseconds time) const {
    pollfd fd{socket_.get(), POLLIN, 0};
    return ::poll(&fd, 1, poll_timeout(Deadline::after(time))) > 0;
}

bool Channel::hung_up() const {
    pollfd fd{socket_.get(), POLLRDHUP, 0};
    return ::poll(&fd, 1, 0) > 0;
}

// --- messages

void Channel::send(const nlohmann::json& header, const std::string& phase, Deadline deadline,
                   ConstSpan payload, std::span<const int> fds) {
    const std::string text = text_of_json(header);
    require(text.size() <= kMaxHeaderBytes && payload.bytes <= kMaxPayloadBytes,
            "message of {} + {} bytes is too large", text.size(), payload.bytes);
    require(fds.size() <= kMaxDescriptors, "{} file descriptors in a message that may carry {}", fds.size(),
            kMaxDescriptors);
    std::array<std::uint32_t, 2> lengths{static_cast<std::uint32_t>(text.size()),
                                         static_cast<std::uint32_t>(payload.bytes)};
    const std::size_t total = sizeof(lengths) + text.size() + payload.bytes;
    std::size_t sent = 0;
    while (sent < total) {
        std::array<iovec, 3> parts{iovec{lengths.data(), sizeof(lengths)},
                                   iovec{const_cast<char*>(text.data()), text.size()},
                                   iovec{const_cast<std::byte*>(payload.data), payload.bytes}};
        std::size_t skip = sent;
        for (auto& part : parts) {
            const std::size_t step = std::min(skip, part.iov_len);
            part.iov_base = static_cast<char*>(part.iov_base) + step;
            part.iov_len -= step;
            skip -= step;
        }
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = parts.size();
        alignas(cmsghdr) std::array<char, kControlBytes> control;
        if (!fds.empty() && sent == 0) put_descriptors(message, fds, control);
        const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            sent += static_cast<std::size_t>(n);
            require_in_time(sent < total, phase, deadline);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            wait_for(POLLOUT, phase, deadline);
        } else if (errno != EINTR) {
            throw TransportError(peer_, phase, std::string("connection lost: ") + std::strerror(errno), true);
        }
    }
}

void Channel::read_exactly(std::byte* data, std::size_t bytes, std::vector<FileDescriptor>& fds,
                           const std::string& phase, Deadline deadline) {
    std::size_t got = 0;
    while (got < bytes) {
        iovec part{data + got, bytes - got};
        alignas(cmsghdr) std::array<char, kControlBytes> control;
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n > 0) {
            take_descriptors(message, fds);
            if ((message.msg_flags & MSG_CTRUNC) != 0 && fds.size() < kMaxDescriptors) {
                throw MalformedMessage(
                    fmt::format("{}: process {} has no file descriptors left (ulimit -n): {} of those with a "
                                "message were taken",
                                peer_, ::getpid(), fds.size()));
            }
            if (fds.size() > kMaxDescriptors || (message.msg_flags & MSG_CTRUNC) != 0) {
                throw MalformedMessage(
                    fmt::format("{}: more than {} file descriptors with a message", peer_, kMaxDescriptors));
            }
            got += static_cast<std::size_t>(n);
            require_in_time(got < bytes, phase, deadline);
        } else if (n == 0) {
            throw TransportError(peer_, phase, "the peer closed the connection", true);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            wait_for(POLLIN, phase, deadline);
        } else if (errno != EINTR) {
            throw TransportError(peer_, phase, std::string("connection lost: ") + std::strerror(errno), true);
        }
    }
}

Message Channel::receive(const std::string& phase, Deadline deadline) {
    Message message;
    std::array<std::uint32_t, 2> lengths{};
    read_exactly(reinterpret_cast<std::byte*>(lengths.data()), sizeof(lengths), message.fds, phase, deadline);
    if (lengths[0] > kMaxHeaderBytes || lengths[1] > kMaxPayloadBytes) {
        throw MalformedMessage(fmt::format("{}: a message of {} + {} bytes is larger than allowed", peer_,
                                           lengths[0], lengths[1]));
    }
    std::string text(lengths[0], '\0');
    read_exactly(reinterpret_cast<std::byte*>(text.data()), text.size(), message.fds, phase, deadline);
    while (message.payload.size() < lengths[1]) {
        const std::size_t at = message.payload.size();
        message.payload.resize(std::min<std::size_t>(lengths[1], at + std::max(at, kPayloadStep)));
        read_exactly(message.payload.data() + at, message.payload.size() - at, message.fds, phase, deadline);
    }
    message.header = json_text_or_nothing(text, {.values = kMostValues});
    if (!message.header.is_object())
        throw MalformedMessage(peer_ + ": a message's header is not a JSON object");
    return message;
}

}  // namespace tandem::engine
