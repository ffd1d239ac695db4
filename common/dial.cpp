#include "common/dial.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <utility>

#include "common/error.h"

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kLongestTurn{250};  // RFC 8305, 5

// All connections to one address.
class Attempt {
  public:
    Attempt(const SocketAddress& to, int count) : to_(to) {
        for (int i = 0; i < count && failure_ == 0; ++i) start();
    }
    bool failed() const { return failure_ != 0; }
    bool refused() const { return failure_ == ECONNREFUSED; }
    // Of a socket that is not connected yet.
    int waits_for() const { return sockets_[connected_].get(); }
    // Whether all of them are, by now.
    bool connected() {
        for (; failure_ == 0 && connected_ < sockets_.size(); ++connected_) {
            pollfd fd{waits_for(), POLLOUT, 0};
            if (::poll(&fd, 1, 0) <= 0) return false;
            socklen_t length = sizeof failure_;
            if (::getsockopt(waits_for(), SOL_SOCKET, SO_ERROR, &failure_, &length) != 0) failure_ = errno;
        }
        return failure_ == 0;
    }
    std::vector<FileDescriptor> take() { return std::move(sockets_); }
    // "10.0.0.1:80 (node7): Connection refused"
    std::string outcome(const std::string& host) const {
        const std::string name = host == to_.host() ? "" : " (" + host + ")";
        return to_.host_port() + name + ": " + (failed() ? std::strerror(failure_) : "no answer");
    }

  private:
    void start() {
        FileDescriptor socket(::socket(to_.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        const bool begun =
            socket && (::connect(socket.get(), to_.get(), to_.length()) == 0 || errno == EINPROGRESS);
        if (!begun) failure_ = errno;
        sockets_.push_back(std::move(socket));
    }

    const SocketAddress& to_;
    std::vector<FileDescriptor> sockets_;
    std::size_t connected_ = 0;
    int failure_ = 0;  // an errno
};

void wait_for_any(const std::list<Attempt>& attempts, Deadline deadline) {
    std::vector<pollfd> fds;
    for (const Attempt& attempt : attempts)
        if (!attempt.failed()) fds.push_back({attempt.waits_for(), POLLOUT, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(std::min<long long>(left, 3'600'000)));
    if (ready < 0 && errno != EINTR) throw SystemError("poll", errno);
}

std::string outcomes(const std::list<Attempt>& attempts, const std::string& host) {
    std::string text;
    for (const Attempt& attempt : attempts) text += (text.empty() ? "" : "; ") + attempt.outcome(host);
    if (std::any_of(attempts.begin(), attempts.end(), [](const Attempt& one) { return one.refused(); }))
        return text + ": nothing listens there; is it up, and is this its address?";
    return text;
}

Dialled try_each(const Addresses& addresses, const std::string& host, Deadline deadline, int count) {
    std::list<Attempt> attempts;
    Deadline turn = deadline;  // of the newest
    for (;;) {
        const std::size_t others = addresses.size() - attempts.size();
        if (others > 0 && (attempts.empty() || attempts.back().failed() || turn.passed())) {
            const auto share = deadline.left() / static_cast<long long>(others);
            turn = deadline.within(std::min<std::chrono::nanoseconds>(share, kLongestTurn));
            attempts.emplace_back(addresses[attempts.size()], count);
        }
        for (Attempt& attempt : attempts)
            if (attempt.connected()) return {attempt.take(), "", false};
        const bool all_tried = attempts.size() == addresses.size();
        if (!all_tried && attempts.back().failed()) continue;
        const bool over =
            std::all_of(attempts.begin(), attempts.end(), [](auto& one) { return one.failed(); });
        if (over || deadline.passed()) {
            const std::string late = over ? "" : "; the deadline has passed";
            return {{}, outcomes(attempts, host) + late, !over};
        }
        wait_for_any(attempts, all_tried ? deadline : turn);
    }
}

}  // namespace

Dialled try_to_dial(const std::string& host, int port, Deadline deadline, int count, const Lookup& lookup) {
    try {
        return try_each(resolve(host, port, deadline, lookup), host, deadline, count);
    } catch (const DeadlineExceeded& error) {
        return {{}, error.what(), true};
    } catch (const BadInput& error) {
        return {{}, fmt::format("'{}' has no address: {}: is its name right?", host, error.what()), false};
    }
}

std::vector<FileDescriptor> dial(const Destination& to, Deadline deadline, int count, const Lookup& lookup) {
    Dialled dialled = try_to_dial(to.host, to.port, deadline, count, lookup);
    if (dialled.late) throw DeadlineExceeded(to.peer, to.phase, dialled.why, true);
    if (!dialled.why.empty()) throw TransportError(to.peer, to.phase, dialled.why, true);
    return std::move(dialled.sockets);
}

}  // namespace tandem
