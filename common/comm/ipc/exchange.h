// All collectives but point-to-point: every rank posts a description of what it calls and where its data
// lies; after one rendezvous every rank checks all posts and pulls the data it needs from where it lies.
//
// Data reaches peers in one of three ways, per rank and item:
//   in line  little data is copied into the post itself, and no rank has to wait for its readers;
//   direct   memory of the job is read in place;
//   staged   any other memory passes through a window of staging memory, round after round: all ranks walk
//            their data together, and round k shows bytes [k * kWindow, (k + 1) * kWindow) of the items, laid
//            end to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/comm/call.h"
#include "common/comm/communicator.h"
#include "common/comm/ipc/group.h"
#include "common/device/memory.h"

namespace tandem::comm::ipc {

struct PostHeader {
    Kind kind = Kind::barrier;
    ReduceOp op = ReduceOp::sum;
    DType dtype = DType::uint8;
    std::int32_t root = -1;
    std::uint32_t items = 0;
    std::uint32_t must_wait = 0;  // some data is direct or staged: its readers must be waited for
    std::uint32_t staged = 0;     // some data is staged
    std::uint32_t on_gpu = 0;     // the data is a GPU's, and moves by other means (gpu_collectives.h)
    std::uint64_t bytes = 0;      // of all items
    std::uint64_t linear_bytes = 0;
    std::uint64_t table = 0;    // offset of PostItem[items] in the job
    std::uint64_t payload = 0;  // offset of the data in line
    std::uint64_t staging = 0;  // offset of the two staging windows
};

struct PostItem {
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  // in the job; or kInSlot, kInStaging; kNowhere: nothing to read
    std::uint64_t linear = 0;  // where the item starts when items are laid end to end, 64-byte aligned
    std::uint64_t extra = 0;   // all_gather: offset of recv; all_to_all: bytes expected from that peer
};

// Memory that a group's operations reuse. One operation at a time.
struct Scratch {
    Buffer staging;    // two windows; taken on first need
    Buffer tables[2];  // of operations with more items than a slot holds
    // The members' posts, copied: what is checked is what is used, whatever a member writes meanwhile.
    std::vector<PostHeader> posts;
    std::vector<PostItem> items;  // [member, item]
};

class Exchange {
  public:
    static constexpr std::size_t kWindow = std::size_t{2} << 20;
    static constexpr std::size_t kInlineBytes = std::size_t{8} << 10;

    Exchange(Group& group, Scratch& scratch, PostHeader header);

    // Adds an item whose data, if any, is `send`. Before post().
    void add(std::uint64_t bytes, const std::byte* send, std::uint64_t extra = 0);
    // Posts, meets, checks. Throws InvalidArgument on every rank alike when the calls do not agree.
    void post();
    // Again for the next window; false after the last one.
    bool next_round();
    // Waits until no peer reads this rank's data any more (or, with `force`, until all are here).
    void finish(bool force = false);
    void meet(std::string_view what) { group_.meet(what, deadline_); }

    const PostItem& item(int member, std::size_t index) const;
    // The part of the item [begin, end) that this round shows. Empty when begin >= end.
    std::pair<std::uint64_t, std::uint64_t> window(int member, std::size_t index) const;
    // The address of `bytes` bytes from byte `position` (inside the window) of the item on; for this rank's own, the
    // caller's memory. Throws ProtocolError when a member's lie outside of the job.
    const std::byte* at(int member, std::size_t index, std::uint64_t position, std::uint64_t bytes) const;
    // The address at which peers read byte `position` of this rank's item: staging, or the caller's memory.
    std::byte* shown(std::size_t index, std::uint64_t position) const;

  private:
    static constexpr std::uint64_t kInSlot = kNowhere - 1;
    static constexpr std::uint64_t kInStaging = kNowhere - 2;

    void publish();
    void place(bool in_slot);
    void stage();
    void copy_posts();
    void copy_items();
    void check_calls() const;
    void check_sizes() const;
    void check_all_to_all() const;
    std::string describe(int member) const;
    [[noreturn]] void fail_check(int one, int other, const std::string& detail) const;

    Group& group_;
    Scratch& scratch_;
    PostHeader header_;
    Deadline deadline_;
    std::uint32_t operation_;
    std::vector<PostItem> items_;
    std::vector<const std::byte*> sends_;
    std::uint64_t linear_ = 0;
    std::uint64_t round_ = 0;
    std::uint64_t rounds_ = 1;
};

}  // namespace tandem::comm::ipc
