#include "tests/support/kernel_clocks.h"

#include <algorithm>

namespace fibers::races {
namespace {

constexpr const char* kUnordered = "with nothing between that orders them";

std::uint32_t at(const std::vector<std::uint32_t>& clock, std::size_t actor) {
    return actor < clock.size() ? clock[actor] : 0;
}

void join_each(std::vector<std::uint32_t>& into, const std::vector<std::uint32_t>& from) {
    if (into.size() < from.size()) into.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void meet_each(std::vector<std::uint32_t>& into, const std::vector<std::uint32_t>& from) {
    if (into.size() > from.size()) into.resize(from.size());
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::min(into[i], from[i]);
}

bool before(const Event& event, const Event& now, const Clock& clock) {
    return event.epoch == 0 || event.actor == now.actor || (event.bytes & now.bytes) == 0 ||
           at(clock.seen, event.actor) >= event.epoch;
}

}  // namespace

void Clock::see(const Actor& actor) {
    if (seen.size() <= actor.number) seen.resize(std::size_t{actor.number} + 1);
    seen[actor.number] = std::max(seen[actor.number], actor.epoch);
}

void Clock::join(const Clock& other) {
    join_each(seen, other.seen);
    join_each(proxy, other.proxy);
}

void Clock::meet(const Clock& other) {
    meet_each(seen, other.seen);
    meet_each(proxy, other.proxy);
}

History& Histories::of(std::uintptr_t word) {
    const std::uintptr_t number = word / kWords;
    if (last_ == nullptr || last_number_ != number) {
        last_number_ = number;
        last_ = &pages_[number];
        last_->resize(kWords);
    }
    return (*last_)[word % kWords];
}

void Histories::clear() {
    for (auto& [number, page] : pages_) {
        for (History& history : page) {
            history.write = {};
            history.reads.clear();
        }
    }
}

void Clocks::begin(std::size_t threads) {
    actors_ = threads;
    if (!on_ && threads_.size() == threads) return;
    on_ = false;
    words_.clear();
    threads_.assign(threads, {});
}

Event Clocks::event(std::size_t thread, std::uint32_t code, std::uint8_t bytes) const {
    return {at(threads_[thread].seen, thread) + 1, code, static_cast<std::uint16_t>(thread), bytes};
}

void Clocks::release_into(Clock& to, std::size_t thread) {
    Clock& mine = threads_[thread];
    if (mine.seen.size() <= thread) mine.seen.resize(threads_.size());
    ++mine.seen[thread];
    to.join(mine);
}

void Clocks::acquire(const Clock& from, std::size_t thread) {
    threads_[thread].join(from);
}

void Clocks::fence_proxies(std::size_t thread) {
    Clock& mine = threads_[thread];
    if (mine.seen.size() <= thread) mine.seen.resize(threads_.size());
    ++mine.seen[thread];
    mine.proxy = mine.seen;
}

void Clocks::synchronize(std::size_t first, std::size_t count) {
    const std::size_t end = std::min(first + count, threads_.size());
    Clock all;
    for (std::size_t thread = first; thread < end; ++thread) release_into(all, thread);
    for (std::size_t thread = first; thread < end; ++thread) threads_[thread] = all;
}

// What one of them has done in its present epoch is its own.
Clock Clocks::seen_by_all(std::size_t first, std::size_t count) const {
    Clock all = threads_[first];
    for (std::size_t thread = first + 1; thread < std::min(first + count, threads_.size()); ++thread)
        all.meet(threads_[thread]);
    return all;
}

std::uint16_t Clocks::new_actor() {
    return static_cast<std::uint16_t>(actors_++);
}

Clocks::Conflict Clocks::read(std::uintptr_t word, const Event& now, const Clock& clock, bool through_proxy) {
    History& history = words_.of(word);
    const Event& write = history.write;
    if (!before(write, now, clock)) return {write, "writes", kUnordered};
    const bool by_thread = write.epoch > 0 && write.actor < threads_.size();
    if (through_proxy && by_thread && at(clock.proxy, write.actor) < write.epoch)
        return {write, "writes", "with no fence of proxies between"};
    std::erase_if(history.reads, [&](const Event& read) {
        return read.actor == now.actor || at(clock.seen, read.actor) >= read.epoch;
    });
    history.reads.push_back(now);
    return {};
}

Clocks::Conflict Clocks::write(std::uintptr_t word, const Event& now, const Clock& clock) {
    History& history = words_.of(word);
    if (!before(history.write, now, clock)) return {history.write, "writes", kUnordered};
    for (const Event& read : history.reads) {
        if (!before(read, now, clock)) return {read, "reads", kUnordered};
    }
    history.reads.clear();
    history.write = now;
    return {};
}

void Clocks::wrote(std::uintptr_t word, const Event& now) {
    History& history = words_.of(word);
    history.write = now;
    history.reads.clear();
}

bool Clocks::has_seen_first(std::size_t thread, std::size_t first, std::size_t count) const {
    for (std::size_t other = first; other < std::min(first + count, threads_.size()); ++other) {
        if (other != thread && at(threads_[thread].seen, other) == 0) return false;
    }
    return true;
}

}  // namespace fibers::races
