#include "common/comm/ipc/group.h"

#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <set>
#include <thread>

#include "common/comm/ipc/futex.h"
#include "common/comm/ipc/rank.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

constexpr std::chrono::nanoseconds kSpin{2000};
// Past the deadline, for the store of a last arriver that is there.
constexpr std::chrono::seconds kLastStore{2};
// Past the deadline, for other ranks to say whom they wait for: a tenth of it, within these.
constexpr std::int64_t kLeastGraceMs = 50, kMostGraceMs = 2000;

std::size_t count(int size) {
    return static_cast<std::size_t>(size);
}
std::size_t members_offset() {
    return (sizeof(GroupBlock) + 63) / 64 * 64;
}
std::size_t channels_offset(int size) {
    return members_offset() + count(size) * sizeof(MemberState);
}
std::size_t slots_offset(int size) {
    return channels_offset(size) + count(size) * count(size) * sizeof(Channel);
}

}  // namespace

// --- a group's block in shared memory

std::size_t GroupBlock::bytes(int size) {
    return slots_offset(size) + count(size) * 2 * kSlotBytes;
}

GroupBlock& GroupBlock::create(std::byte* memory, std::string_view name, const std::vector<int>& ranks,
                               std::uint32_t occurrence) {
    const int size = static_cast<int>(ranks.size());
    auto* block = new (memory) GroupBlock{};
    block->size = static_cast<std::uint32_t>(size);
    block->occurrence = occurrence;
    std::memcpy(block->name, name.data(), std::min(name.size(), sizeof(block->name) - 1));
    for (int i = 0; i < size; ++i) {
        auto* state = new (memory + members_offset() + count(i) * sizeof(MemberState)) MemberState{};
        state->rank.store(ranks[count(i)]);
    }
    for (int i = 0; i < size * size; ++i)
        new (memory + channels_offset(size) + count(i) * sizeof(Channel)) Channel{};
    return *block;
}

MemberState& GroupView::member(int index) const {
    return *std::launder(
        reinterpret_cast<MemberState*>(at(members_offset() + count(index) * sizeof(MemberState))));
}

Channel& GroupView::channel(int from, int to) const {
    return *std::launder(
        reinterpret_cast<Channel*>(at(channels_offset(size_) + count(from * size_ + to) * sizeof(Channel))));
}

std::byte* GroupView::slot(int index, std::uint32_t operation) const {
    return at(slots_offset(size_) + (count(index) * 2 + operation % 2) * kSlotBytes);
}

bool GroupView::is(std::string_view wanted, const std::vector<int>& ranks,
                   std::uint32_t wanted_occurrence) const {
    if (block_->size != ranks.size() || block_->occurrence != wanted_occurrence) return false;
    const std::string_view name(block_->name, ::strnlen(block_->name, sizeof(block_->name)));
    if (wanted.substr(0, sizeof(block_->name) - 1) != name) return false;
    for (int i = 0; i < size_; ++i) {
        if (member(i).rank.load(std::memory_order_relaxed) != ranks[count(i)]) return false;
    }
    return true;
}

// --- who is in it, and until when calls wait

Group::Group(std::shared_ptr<Rank> rank, GroupBlock& block, std::string name, std::vector<int> ranks)
    : rank_(std::move(rank)),
      block_(block, static_cast<int>(ranks.size())),
      name_(std::move(name)),
      ranks_(std::move(ranks)) {
    const auto me = std::find(ranks_.begin(), ranks_.end(), rank_->index);
    require(me != ranks_.end(), "group '{}' without {}", name_, rank_->name());
    index_ = static_cast<int>(me - ranks_.begin());
}

Job& Group::job() const {
    return *rank_->job;
}
Deadline Group::deadline() const {
    return Deadline::after_ms(rank_->timeout_ms.load(std::memory_order_relaxed));
}
std::string Group::phase(std::string_view what) const {
    return fmt::format("{} on '{}'", what, name_);
}
std::string Group::rank_name(int index) const {
    return "rank " + std::to_string(ranks_[count(index)]);
}

// --- waiting: a short spin, then sleep on a futex

bool Group::spin(const std::atomic<std::uint32_t>& word, std::uint32_t seen) const {
    if (!rank_->may_spin) return false;
    const auto until = Deadline::Clock::now() + kSpin;
    do {
        for (int i = 0; i < 32; ++i) {
            if (word.load(std::memory_order_acquire) != seen) return true;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
    } while (Deadline::Clock::now() < until);
    return false;
}

void Group::sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t seen, std::string_view what,
                     Deadline deadline) const {
    if (word.load(std::memory_order_acquire) != seen || spin(word, seen)) return;
    if (job().aborted()) job().throw_if_aborted(phase(what));
    // Past the deadline there is nothing to wait for but the last arriver's store: look again soon.
    constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(1);
    futex_wait(word, seen, std::clamp<std::chrono::nanoseconds>(deadline.left(), kShortest, kNoticeAbort));
}

void Group::wait_for(const std::atomic<std::uint32_t>& word, std::string_view what, Deadline deadline,
                     const std::function<bool()>& ready,
                     const std::function<std::vector<int>()>& late) const {
    constexpr int kCheckGone = 25;  // sleeps between two looks: half a second when nothing happens
    for (int sleeps = 1;; ++sleeps) {
        const std::uint32_t seen = word.load(std::memory_order_acquire);
        if (ready()) return;
        sleep_on(word, seen, what, deadline);
        if (sleeps % kCheckGone == 0) check_gone(what, late);
        if (!deadline.passed() || ready()) continue;
        if (const std::vector<int> members = late(); !members.empty()) fail_late(what, members);
        // The last arriver was killed before its store, or somebody has written over what counts arrivals.
        if (Deadline::Clock::now() - deadline.at() > kLastStore) fail_late(what, others());
    }
}

std::vector<int> Group::others() const {
    std::vector<int> members;
    for (int i = 0; i < size(); ++i) {
        if (i != index_) members.push_back(i);
    }
    return members;
}

bool Group::is_gone(int member) const {
    const pid_t pid = job().slot(ranks_[count(member)]).pid.load(std::memory_order_relaxed);
    return pid != 0 && (pid == kEnded || (::kill(pid, 0) != 0 && errno == ESRCH));
}

// Without a launcher that watches the ranks, nobody else would tell. Zombies count as alive until they are
// reaped.
void Group::check_gone(std::string_view what, const std::function<std::vector<int>()>& late) const {
    for (const int member : late()) {
        if (!is_gone(member)) continue;
        const std::vector<int> still = late();  // it may have come, and then left in peace
        if (std::find(still.begin(), still.end(), member) == still.end()) continue;
        const std::string text = "its process has ended";
        job().abort(rank_name(member), text);
        throw TransportError(rank_name(member), phase(what), text);
    }
}

void Group::check_members(std::string_view what) const {
    check_gone(what, [this] { return others(); });
}

// --- the rendezvous of all members

void Group::meet(std::string_view what, Deadline deadline) {
    if (size() == 1) return;
    const std::uint32_t step = meetings_++;
    block_.member(index_).arrivals.store(step + 1, std::memory_order_relaxed);
    if (block_.head().arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_.size()) {
        block_.head().arrived.store(0,
                                    std::memory_order_relaxed);  // published by the store of the generation
        block_.head().generation.store(step + 1, std::memory_order_release);
        futex_wake_all(block_.head().generation);
        return;
    }
    const auto ready = [&] { return block_.head().generation.load(std::memory_order_acquire) != step; };
    wait_for(block_.head().generation, what, deadline, ready, [&] {
        std::vector<int> late;
        for (int i = 0; i < size(); ++i) {
            const std::uint32_t arrivals = block_.member(i).arrivals.load(std::memory_order_relaxed);
            if (static_cast<std::int32_t>(arrivals - (step + 1)) < 0) late.push_back(i);
        }
        return late;
    });
}

void Group::fail_late(std::string_view what, const std::vector<int>& late) const {
    const std::int64_t timeout_ms = rank_->timeout_ms.load();
    job().slot(rank_->index).late.store(ranks_[count(late.front())] + 1);
    const Deadline others_have_said =
        Deadline::after_ms(std::clamp<std::int64_t>(timeout_ms / 10, kLeastGraceMs, kMostGraceMs));
    while (!others_have_said.passed()) {
        if (job().aborted()) job().throw_if_aborted(phase(what));
        std::this_thread::sleep_for(kNoticeAbort);
    }
    std::set<int> ranks;
    for (const int index : late) ranks.insert(last_late(ranks_[count(index)]));
    std::string names;
    for (const int one : ranks) names += fmt::format("{}rank {}", names.empty() ? "" : ", ", one);
    const std::string after = fmt::format("not there after {} s", double(timeout_ms) / 1000);
    job().abort(rank_->name(), fmt::format("{} with {}: {}", phase(what), names, after));
    throw DeadlineExceeded(names, phase(what), after);
}

int Group::last_late(int rank) const {
    std::set<int> seen{rank_->index};
    for (int last = rank; seen.insert(last).second;) {
        const int next = job().slot(last).late.load() - 1;
        if (next < 0 || next >= job().world_size()) return last;
        last = next;
    }
    return rank;  // they wait for each other
}

}  // namespace tandem::comm::ipc
