#include "tests/multiproc/fire/proxy.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <memory>
#include <random>

#include "tests/multiproc/fire/board.h"

namespace tandem::fire {
namespace {

using engine::Channel;
using engine::Message;
using std::chrono::milliseconds;

Deadline patient() {
    return Deadline::after_ms(60'000);
}

void send(Channel& to, const Message& message) {
    std::vector<int> fds;
    for (const FileDescriptor& fd : message.fds) fds.push_back(fd.get());
    to.send(message.header, "proxy", patient(), {message.payload.data(), message.payload.size()}, fds);
}

}  // namespace

Proxy::Proxy(std::uint64_t seed) : stop_(::eventfd(0, EFD_CLOEXEC)), seed_(seed) {
    acceptor_ = std::thread([this] { accept_all(); });
}

Proxy::~Proxy() {
    ::eventfd_write(stop_.get(), 1);
    acceptor_.join();
    for (std::thread& connection : connections_) connection.join();
}

void Proxy::forward_to(const std::string& receiver) {
    const std::lock_guard lock(mutex_);
    receiver_ = receiver;
}

std::string Proxy::counts() const {
    constexpr std::array<const char*, kFaults> kNames{"forwarded",  "lost", "cut before", "cut after",
                                                      "said twice", "late", "too late"};
    std::string text;
    for (std::size_t i = 0; i < kFaults; ++i)
        text += fmt::format("{}{} {}", i == 0 ? "" : ", ", kNames[i], counts_[i].load());
    return text;
}

void Proxy::accept_all() {
    for (;;) {
        std::array<pollfd, 2> events{{{stop_.get(), POLLIN, 0}, {listener_.socket.get(), POLLIN, 0}}};
        ::poll(events.data(), events.size(), -1);
        if (events[0].revents != 0) return;
        FileDescriptor socket(
            ::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket) continue;
        connections_.emplace_back(
            [this, seed = ++seed_, fd = std::make_shared<FileDescriptor>(std::move(socket))] {
                try {
                    serve(std::move(*fd), seed);
                } catch (const std::exception&) {  // one of the two has gone, or the proxy ends
                }
            });
    }
}

// About one push in eight meets a fault.
Proxy::Fault Proxy::choose(std::uint64_t random) {
    if (faithful_) return Fault::none;
    const std::uint64_t one_in_a_thousand = random % 1000;
    return one_in_a_thousand < kFaults ? static_cast<Fault>(one_in_a_thousand) : Fault::none;
}

// One thread for both directions: a message that is late holds up those behind it, as in a network.
void Proxy::serve(FileDescriptor socket, std::uint64_t seed) {
    std::string receiver;
    {
        const std::lock_guard lock(mutex_);
        receiver = receiver_;
    }
    std::array<Channel, 2> ends{Channel(std::move(socket), "trainer"),
                                Channel::connect(receiver, Deadline::after_ms(kPatienceMs))};
    for (Channel& end : ends) end.interrupt_with(stop_.get());
    std::mt19937_64 random(seed);
    for (;;) {
        std::array<pollfd, 3> events{
            {{ends[0].fd(), POLLIN, 0}, {ends[1].fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
        ::poll(events.data(), events.size(), -1);
        if (events[2].revents != 0) return;
        for (std::size_t from = 0; from < 2; ++from) {
            if (events[from].revents == 0) continue;
            const Message message = ends[from].receive("proxy", patient());
            Channel& to = ends[1 - from];
            const Fault fault = choose(random());
            ++counts_[static_cast<std::size_t>(fault)];
            if (fault == Fault::lost) continue;
            if (fault == Fault::cut) return;
            if (fault == Fault::late) std::this_thread::sleep_for(milliseconds(random() % 300));
            if (fault == Fault::too_late) std::this_thread::sleep_for(milliseconds(kPatienceMs + 300));
            send(to, message);
            if (fault == Fault::twice) send(to, message);
            if (fault == Fault::cut_after) return;
        }
    }
}

}  // namespace tandem::fire
