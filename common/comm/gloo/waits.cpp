#include "common/comm/gloo/waits.h"

#include <gloo/common/error.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tandem::comm::gloo {
namespace {

constexpr std::chrono::milliseconds kNever = std::chrono::hours(1000);  // Gloo adds it to the clock
constexpr std::chrono::milliseconds kLastLook{2};

}  // namespace

Transfer Transfer::send(Context& context, ConstSpan memory, int peer, std::uint64_t slot) {
    // Gloo takes one pointer for both directions; a send only reads.
    auto buffer = context.createUnboundBuffer(const_cast<std::byte*>(memory.data), memory.bytes);
    buffer->send(peer, slot);
    return Transfer(std::move(buffer), Direction::send, peer);
}

Transfer Transfer::recv(Context& context, Span memory, int peer, std::uint64_t slot) {
    auto buffer = context.createUnboundBuffer(memory.data, memory.bytes);
    buffer->recv(peer, slot);
    return Transfer(std::move(buffer), Direction::recv, peer);
}

Transfer Transfer::recv_any(Context& context, Span memory, std::uint64_t slot) {
    std::vector<int> peers;
    for (int rank = 0; rank < context.size; ++rank) {
        if (rank != context.rank) peers.push_back(rank);
    }
    auto buffer = context.createUnboundBuffer(memory.data, memory.bytes);
    buffer->recv(peers, slot);
    return Transfer(std::move(buffer), Direction::recv, -1);
}

bool Transfer::block(int& from) {
    done_ =
        direction_ == Direction::send ? buffer_->waitSend(&from, kNever) : buffer_->waitRecv(&from, kNever);
    return done_;
}

void Transfer::wake() {
    direction_ == Direction::send ? buffer_->abortWaitSend() : buffer_->abortWaitRecv();
}

Waits::Waits() : thread_("that waits for Gloo", [this] { run(); }) {}

Waits::~Waits() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

// Gloo answers "woken" also when the transfer was done just before: hence one more look after each reason to
// give up.
Waits::Outcome Waits::wait(Transfer& transfer, Deadline deadline, int* from) {
    if (transfer.done_) return Outcome::done;
    int peer = -1;
    auto at = deadline.at();
    for (bool last_look = false;;) {
        std::set<Waiter>::iterator entry;
        {
            const std::lock_guard lock(mutex_);
            if (woken_) at = std::min(at, Deadline::Clock::now() + kLastLook);
            entry = waiters_.insert({&transfer, at}).first;
            if (at < sleeps_until_) changed_.notify_all();
        }
        Outcome outcome = Outcome::late;
        try {
            if (transfer.block(peer)) outcome = Outcome::done;
        } catch (const ::gloo::Exception&) {
            outcome = Outcome::closed;
        }
        bool woken = false;
        {
            const std::lock_guard lock(mutex_);
            waiters_.erase(entry);
            woken = woken_;
        }
        if (from != nullptr) *from = peer;
        if (outcome != Outcome::late) return outcome;
        if (!woken && !deadline.passed()) continue;
        if (last_look && Deadline::Clock::now() >= at) return woken ? Outcome::woken : Outcome::late;
        if (!last_look) at = Deadline::Clock::now() + kLastLook;
        last_look = true;
    }
}

void Waits::wake_all() noexcept {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    for (const Waiter& waiter : waiters_) waiter.transfer->wake();
}

void Waits::run() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
        sleeps_until_ = waiters_.empty() ? Deadline::Clock::time_point::max() : waiters_.begin()->at;
        if (waiters_.empty()) {
            changed_.wait(lock);
            continue;
        }
        if (Deadline::Clock::now() < sleeps_until_) {
            changed_.wait_until(lock, sleeps_until_);
            continue;
        }
        for (const Waiter& waiter : waiters_) {
            if (waiter.at > Deadline::Clock::now()) break;
            waiter.transfer->wake();
        }
        // The waiters leave the list themselves.
        sleeps_until_ = Deadline::Clock::now() + std::chrono::milliseconds(1);
        changed_.wait_until(lock, sleeps_until_);
    }
}

}  // namespace tandem::comm::gloo
