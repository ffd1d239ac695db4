// Point-to-point transfers: a batch advances all its sends and receives side by side, so no order of them can deadlock.
// Between two members, sends meet receives in the order of the calls.
#include <algorithm>
#include <cstring>

#include "common/comm/ipc/collectives.h"
#include "common/comm/ipc/futex.h"
#include "common/comm/ipc/rank.h"
#include "common/device/memory.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

constexpr std::size_t kPiece = std::size_t{1}
                               << 20;  // of a send that must be staged; two are on the way at once
constexpr const char* kWhat = "p2p";

// One op of the batch on its way. A send posts its pieces and is done when the last one was taken; a receive
// takes pieces until it has all bytes.
struct Transfer {
    P2POp op;
    Channel* channel = nullptr;
    Buffer staging;
    std::uint64_t direct = kNowhere;  // offset of a send's memory when peers reach it
    std::uint64_t moved = 0;          // bytes posted or received
    bool begun = false;
    bool posted_all = false;
    std::uint32_t last_post = 0;   // channel count after this send's newest piece
    std::uint32_t first_post = 0;  // and before its first
    bool done = false;
};

class Batch {
  public:
    Batch(Group& group, const std::vector<P2POp>& ops) : group_(group), deadline_(group.deadline()) {
        group.job().throw_if_aborted(group.phase(kWhat));
        transfers_.resize(ops.size());
        for (std::size_t i = 0; i < ops.size(); ++i) set_up(transfers_[i], ops[i]);
    }

    void run() {
        const auto& bell = group_.block().member(group_.index()).bell;
        group_.wait_for(
            bell, kWhat, deadline_, [this] { return advance(); }, [this] { return late(); });
    }

  private:
    // Moves what can move, in order; an op waits for the earlier ones of the same peer and direction. True
    // when all is done.
    bool advance() {
        bool moved = true;
        while (moved) {
            moved = false;
            bool all_done = true;
            for (std::size_t i = 0; i < transfers_.size(); ++i) {
                Transfer& t = transfers_[i];
                if (t.done) continue;
                if (!has_earlier(i)) {
                    moved = (t.op.kind == P2POp::Kind::send ? advance_send(t) : advance_recv(t)) || moved;
                }
                all_done = all_done && t.done;
            }
            if (all_done) return true;
        }
        return false;
    }

    // Peers that owe something: a piece to receive, or the taking of one that was posted.
    std::vector<int> late() const {
        std::vector<int> members;
        for (const Transfer& t : transfers_) {
            if (t.done) continue;
            const std::uint32_t taken = t.channel->taken.load(std::memory_order_acquire);
            const std::uint32_t posted = t.channel->posted.load(std::memory_order_acquire);
            const bool owes = t.op.kind == P2POp::Kind::send ? posted != taken : posted == taken;
            if (owes) members.push_back(t.op.peer);
        }
        std::sort(members.begin(), members.end());
        members.erase(std::unique(members.begin(), members.end()), members.end());
        return members;
    }

    void set_up(Transfer& t, const P2POp& op) {
        t.op = op;
        const bool sends = op.kind == P2POp::Kind::send;
        t.channel = sends ? &group_.block().channel(group_.index(), op.peer)
                          : &group_.block().channel(op.peer, group_.index());
        if (!sends || op.memory.bytes == 0) return;
        t.direct = group_.job().offset_of(op.memory);
        if (t.direct == kNowhere) {
            t.staging = Buffer(std::min(op.memory.bytes, 2 * kPiece), "comm_staging", *group_.rank().pool);
        }
    }

    // A receive blocks later receives of its channel until it has all; a send until it has posted all.
    bool has_earlier(std::size_t index) const {
        for (std::size_t i = 0; i < index; ++i) {
            const Transfer& t = transfers_[i];
            if (t.channel != transfers_[index].channel || t.op.kind != transfers_[index].op.kind) continue;
            if (!(t.op.kind == P2POp::Kind::send ? t.posted_all : t.done)) return true;
        }
        return false;
    }

    void ring(int peer) {
        auto& bell = group_.block().member(peer).bell;
        bell.fetch_add(1, std::memory_order_acq_rel);
        if (peer != group_.index()) futex_wake_all(bell);
    }

    bool advance_send(Transfer& t) {
        bool moved = false;
        while (!t.posted_all && post_piece(t)) moved = true;
        if (!t.posted_all) return moved;
        const std::uint32_t taken = t.channel->taken.load(std::memory_order_acquire);
        if (static_cast<std::int32_t>(taken - t.last_post) < 0) return moved;
        t.done = true;
        return true;
    }

    bool post_piece(Transfer& t) {
        Channel& channel = *t.channel;
        const std::uint32_t posted = channel.posted.load(std::memory_order_relaxed);
        const std::uint32_t taken = channel.taken.load(std::memory_order_acquire);
        if (posted - taken == kChannelEntries) return false;
        if (!t.begun) t.first_post = posted;
        const std::uint64_t total = t.op.memory.bytes;
        std::uint64_t bytes = total;
        std::uint64_t offset = t.direct;
        if (t.staging.bytes() > 0) {
            // The half that this piece takes was used two pieces ago: it must have been taken.
            const std::uint32_t piece = posted - t.first_post;
            if (piece >= 2 && static_cast<std::int32_t>(taken - (posted - 1)) < 0) return false;
            std::byte* half = t.staging.data() + (piece % 2) * kPiece;
            bytes = std::min<std::uint64_t>(kPiece, total - t.moved);
            std::memcpy(half, t.op.memory.data + t.moved, bytes);
            offset = group_.job().offset_of({half, bytes});
        }
        t.begun = true;
        channel.entries[posted % kChannelEntries] = {.offset = offset, .bytes = bytes, .total = total};
        channel.posted.store(posted + 1, std::memory_order_release);
        t.moved += bytes;
        t.last_post = posted + 1;
        t.posted_all = t.moved == total;
        ring(t.op.peer);
        return true;
    }

    bool advance_recv(Transfer& t) {
        Channel& channel = *t.channel;
        bool moved = false;
        while (!t.done) {
            const std::uint32_t taken = channel.taken.load(std::memory_order_relaxed);
            if (channel.posted.load(std::memory_order_acquire) == taken) return moved;
            const ChannelEntry entry = private_copy(channel.entries[taken % kChannelEntries]);
            if (entry.total != t.op.memory.bytes) fail_size(t, entry.total);
            const std::uint64_t missing = entry.total - t.moved;
            if (entry.bytes > missing || (entry.bytes == 0 && missing > 0))
                fail_size(t, t.moved + entry.bytes);
            if (entry.bytes > 0) {
                const std::byte* from = group_.job().at(entry.offset, entry.bytes);
                std::memcpy(t.op.memory.data + t.moved, from, entry.bytes);
            }
            channel.taken.store(taken + 1, std::memory_order_release);
            t.moved += entry.bytes;
            t.done = t.moved == t.op.memory.bytes;
            ring(t.op.peer);
            moved = true;
        }
        return moved;
    }

    // The channel cannot be used any more: the job ends with the same words on both sides.
    [[noreturn]] void fail_size(const Transfer& t, std::uint64_t sent) {
        const std::string text =
            fmt::format("{}: {} sends {} bytes to {}, which expects {}", group_.phase(kWhat),
                        group_.rank_name(t.op.peer), sent, group_.rank().name(), t.op.memory.bytes);
        group_.job().abort(group_.rank().name(), text);
        throw InvalidArgument(text);
    }

    Group& group_;
    Deadline deadline_;
    std::vector<Transfer> transfers_;
};

}  // namespace

void OnCpu::p2p(const std::vector<P2POp>& ops) {
    Batch(group_, ops).run();
}

}  // namespace tandem::comm::ipc
