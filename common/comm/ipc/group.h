// A group of ranks in shared memory: its members, the rendezvous counters, two post slots a member (one for
// even and one for odd operations), and a channel a pair of members for point-to-point transfers.
//
// Why two slots are enough: a rank posts operation o + 2 only after the rendezvous of o + 1, and a peer
// arrives there only when it is done with o.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/ipc/gpu.h"
#include "common/comm/ipc/job.h"
#include "common/deadline.h"

namespace tandem::comm::ipc {

constexpr std::size_t kSlotBytes = std::size_t{16} << 10;
constexpr std::uint32_t kChannelEntries = 8;
constexpr std::chrono::milliseconds kNoticeAbort{20};  // longest sleep between two looks at the abort word

struct alignas(64) MemberState {
    std::atomic<std::uint32_t> arrivals;  // rendezvous that this member reached; to name late members
    std::atomic<std::int32_t> rank;       // global rank
    alignas(64)
        std::atomic<std::uint32_t> bell;  // futex word: rung by peers that posted to or took from this member
    EventOffer sent;   // on a GPU: written before this member's first announcement to a peer,
    EventOffer taken;  // and before its first answer to one
};

struct ChannelEntry {
    std::uint64_t offset;  // of this piece, in the job
    std::uint64_t bytes;   // of this piece
    std::uint64_t total;   // of the whole send
};

// From one member to another. Single producer, single consumer.
struct alignas(64) Channel {
    std::atomic<std::uint32_t> posted;
    alignas(64) std::atomic<std::uint32_t> taken;
    std::atomic<std::uint32_t> answered;  // on a GPU: announcements whose bytes the receiver's stream copies
    alignas(64) ChannelEntry entries[kChannelEntries];
};

struct GroupBlock {
    std::uint64_t next;  // offset of the next older block of the same leader, 0: none
    std::uint32_t size;
    std::uint32_t occurrence;  // how often the leader had split off this very list before
    char name[96];
    alignas(64) std::atomic<std::uint32_t> arrived;     // at the current rendezvous
    alignas(64) std::atomic<std::uint32_t> generation;  // rendezvous completed; futex word

    static std::size_t bytes(int size);
    static GroupBlock& create(std::byte* memory, std::string_view name, const std::vector<int>& ranks,
                              std::uint32_t occurrence);
};

// The parts of a group's memory, GroupBlock::bytes(size) long. Where they lie follows from the size that this rank
// knows, not from the one that is written there.
class GroupView {
  public:
    GroupView(GroupBlock& block, int size) : block_(&block), size_(size) {}
    GroupBlock& head() const { return *block_; }
    MemberState& member(int index) const;
    Channel& channel(int from, int to) const;
    std::byte* slot(int index, std::uint32_t operation) const;
    bool is(std::string_view name, const std::vector<int>& ranks, std::uint32_t occurrence) const;

  private:
    std::byte* at(std::size_t offset) const { return reinterpret_cast<std::byte*>(block_) + offset; }
    GroupBlock* block_;
    int size_;
};

// This process's rank in the job: its heap and what its groups share.
struct Rank;

// This rank's handle on a group.
class Group {
  public:
    Group(std::shared_ptr<Rank> rank, GroupBlock& block, std::string name, std::vector<int> ranks);

    int index() const { return index_; }
    int size() const { return static_cast<int>(ranks_.size()); }
    const std::string& name() const { return name_; }
    const std::vector<int>& ranks() const { return ranks_; }
    Rank& rank() const { return *rank_; }
    const std::shared_ptr<Rank>& shared_rank() const { return rank_; }
    Job& job() const;
    const GroupView& block() const { return block_; }

    Deadline deadline() const;                       // now + the rank's timeout
    std::string phase(std::string_view what) const;  // "all_gather on 'dp'"
    std::string rank_name(int index) const;          // "rank 3"
    std::uint32_t next_operation() { return operations_++; }

    bool is_gone(int member) const;  // its process has ended
    void check_members(
        std::string_view what) const;  // one whose process has ended aborts the job; throws then

    // Returns when every member has called it as often as this one.
    void meet(std::string_view what, Deadline deadline);
    // Sleeps on `word` until ready(). late() says which members (group indices) are still waited for: one
    // whose process is gone, or the deadline, aborts the job with their names. Throws when aborted.
    void wait_for(const std::atomic<std::uint32_t>& word, std::string_view what, Deadline deadline,
                  const std::function<bool()>& ready, const std::function<std::vector<int>()>& late) const;

  private:
    void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t seen, std::string_view what,
                  Deadline deadline) const;
    void check_gone(std::string_view what, const std::function<std::vector<int>()>& late) const;
    // Aborts the job and throws DeadlineExceeded naming the members of `late` (group indices), or, of those that wait in vain
    // themselves, whom they wait for. First gives the other ranks time to say so.
    [[noreturn]] void fail_late(std::string_view what, const std::vector<int>& late) const;
    int last_late(int rank) const;  // global ranks
    std::vector<int> others() const;
    bool spin(const std::atomic<std::uint32_t>& word, std::uint32_t seen) const;

    std::shared_ptr<Rank> rank_;
    GroupView block_;
    std::string name_;
    std::vector<int> ranks_;
    int index_ = 0;
    std::uint32_t meetings_ = 0;
    std::uint32_t operations_ = 0;
};

}  // namespace tandem::comm::ipc
