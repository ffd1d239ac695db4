// The memory of one job: [control | world group | heap of rank 0 | heap of rank 1 | …], one sparse memfd that
// every rank maps whole. Pages exist from their first touch on; the file has no name, so nothing outlives the
// last process.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "common/device/device.h"
#include "common/device/shared_arena.h"

namespace tandem::comm::ipc {

struct GroupBlock;

// A copy, of what a peer may write at any time, that stays as it was when it was checked.
template <typename T>
T private_copy(const T& shared) {
    T own;
    std::memcpy(static_cast<void*>(&own), &shared, sizeof(T));
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler may not read it again
    return own;
}

constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
constexpr int kMaxRanks = 256;  // of one host

constexpr std::int32_t kEnded = -1;

// One rank's corner of the control area. That rank writes it; the launcher writes `pid` once the process has
// ended.
struct alignas(64) RankSlot {
    std::atomic<std::uint32_t> attached;     // 1 from the moment a process took this rank
    std::atomic<std::int32_t> pid;           // of that process, 0 before
    std::atomic<std::uint64_t> groups_head;  // offset of the newest GroupBlock that this rank leads, 0: none
    std::atomic<std::uint32_t> groups_changed;  // futex word: bumped with every new block
    std::atomic<std::int32_t> late;             // rank + 1 that this one has waited for in vain, 0: none
};

// State of abort_state: 0 none, 1 somebody is writing who and reason, 2 written.
struct JobControl {
    std::uint64_t magic;
    std::uint64_t total_bytes;
    std::uint64_t heap_bytes;
    std::uint64_t heaps_offset;
    std::uint32_t world_size;
    std::atomic<std::uint32_t> abort_state;
    char abort_who[64];
    char abort_reason[1024];
    RankSlot ranks[1];  // world_size of them
};

class Job {
  public:
    // heap_bytes 0: a default from the machine's memory.
    static std::shared_ptr<Job> create(int world_size, std::size_t heap_bytes = 0);
    // Maps the job behind `fd` (taken over). Throws ProtocolError unless it is one of `world_size` ranks, laid out as
    // create() does, in a memfd of that very size.
    static std::shared_ptr<Job> open(int fd, int world_size);
    // A job of one rank: private memory, nothing shared.
    static std::shared_ptr<Job> solo();

    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    ~Job() = default;

    int world_size() const { return layout_.world_size; }
    bool is_solo() const { return private_ != nullptr; }
    int fd() const { return arena_.fd(); }
    Span memory() const { return arena_.span(); }  // all of it; empty when solo
    Span heap(int rank) const;                     // empty when solo
    RankSlot& slot(int rank) const { return control_->ranks[rank]; }
    GroupBlock& world_block() const;

    // The bytes that a peer says to be there. Throws ProtocolError when they are not of the job.
    std::byte* at(std::uint64_t offset, std::uint64_t bytes) const;
    // Offset under which every rank reaches this memory, or kNowhere. A solo job reaches everything.
    std::uint64_t offset_of(ConstSpan memory) const;

    // First caller wins. `who` is "rank 2" or "launcher". Waiters notice within kNoticeAbort.
    void abort(std::string_view who, std::string_view reason) const noexcept;
    bool aborted() const { return control_->abort_state.load(std::memory_order_acquire) != 0; }
    std::string abort_who() const;
    std::string abort_reason() const;
    void throw_if_aborted(std::string_view phase) const {
        if (aborted()) throw_aborted(phase);
    }

  private:
    struct FreePrivate {
        void operator()(std::byte* data) const;
    };
    // Reckoned by this process and kept for itself: peers may write the control area.
    struct Layout {
        int world_size = 0;
        std::size_t heap_bytes = 0;
        std::size_t heaps_offset = 0;
        std::size_t total_bytes = 0;
    };
    Job() = default;
    static Layout layout_of(int world_size, std::size_t heap_bytes);
    void lay_out(const Layout& layout);
    [[noreturn]] void throw_aborted(std::string_view phase) const;

    Layout layout_;
    SharedArena arena_;
    std::unique_ptr<std::byte, FreePrivate> private_;
    std::byte* base_ = nullptr;
    JobControl* control_ = nullptr;
};

}  // namespace tandem::comm::ipc
