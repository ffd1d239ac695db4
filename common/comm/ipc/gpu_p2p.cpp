// Point-to-point batches for memory of a GPU. Senders announce where their bytes lie over the host's
// channels, in the order of the batch, which keeps its deadlines and its words. Receivers copy them and count
// that as answered.
#include <algorithm>
#include <vector>

#include "common/align.h"
#include "common/comm/ipc/futex.h"
#include "common/comm/ipc/gpu_collectives.h"
#include "common/comm/ipc/rank.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

struct Announcement {
    std::uint64_t bytes = 0;
    Place place;
};

template <typename T>
Span bytes_of(T& value) {
    return {reinterpret_cast<std::byte*>(&value), sizeof(value)};
}

}  // namespace

void GpuGroup::p2p(const std::vector<P2POp>& ops, Stream& stream) {
    const std::string phase = group_.phase("p2p");
    std::size_t staged = 0;
    for (const P2POp& op : ops) {
        const bool sends = op.kind == P2POp::Kind::send && op.memory.bytes > 0;
        if (sends && gpu_->pool().place_of(op.memory).pid == 0) staged += round_up(op.memory.bytes, 256);
    }
    const Span room = staged > 0 ? staging(staged, stream) : Span{};
    std::vector<Announcement> announced(ops.size());
    std::vector<P2POp> announcements;
    std::size_t used = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        const P2POp& op = ops[i];
        announcements.push_back({op.kind, op.peer, bytes_of(announced[i])});
        const bool sends = op.kind == P2POp::Kind::send;
        if (!sends) continue;
        announced[i].bytes = op.memory.bytes;
        if (op.memory.bytes == 0) continue;
        announced[i].place = gpu_->pool().place_of(op.memory);
        if (announced[i].place.pid != 0) continue;
        const Span copied = room.subspan(used, op.memory.bytes);
        used += round_up(op.memory.bytes, 256);
        copy(stream, op.memory, copied);
        announced[i].place = gpu_->pool().place_of(copied);
    }
    sent_.record(stream);
    on_cpu_.p2p(announcements);
    for (std::size_t i = 0; i < ops.size(); ++i) {
        const P2POp& op = ops[i];
        if (op.kind == P2POp::Kind::send) continue;
        if (announced[i].bytes != op.memory.bytes) {
            const std::string text =
                fmt::format("{}: {} sends {} bytes to {}, which expects {}", phase, group_.rank_name(op.peer),
                            announced[i].bytes, group_.rank().name(), op.memory.bytes);
            group_.job().abort(group_.rank().name(), text);
            throw InvalidArgument(text);
        }
        if (op.memory.bytes == 0) continue;
        if (op.peer != group_.index()) {
            sent_.open(op.peer, group_.block().member(op.peer).sent);
            sent_.wait(stream, op.peer);
        }
        copy(stream, {gpu_->reach(announced[i].place, 0, op.memory.bytes), op.memory.bytes}, op.memory);
    }
    taken_.record(stream);
    answer(ops);
    await_answers(ops, stream);
}

void GpuGroup::answer(const std::vector<P2POp>& ops) {
    for (const P2POp& op : ops) {
        if (op.kind == P2POp::Kind::send || op.peer == group_.index()) continue;
        group_.block().channel(op.peer, group_.index()).answered.fetch_add(1, std::memory_order_release);
        auto& bell = group_.block().member(op.peer).bell;
        bell.fetch_add(1, std::memory_order_acq_rel);
        futex_wake_all(bell);
    }
}

// The stream goes on when the receivers' streams are past their copies.
void GpuGroup::await_answers(const std::vector<P2POp>& ops, Stream& stream) {
    std::vector<int> peers;
    for (const P2POp& op : ops) {
        if (op.kind == P2POp::Kind::recv || op.peer == group_.index()) continue;
        ++announced_to_[static_cast<std::size_t>(op.peer)];
        peers.push_back(op.peer);
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    const auto late = [&] {
        std::vector<int> members;
        for (const int peer : peers) {
            const auto& answered = group_.block().channel(group_.index(), peer).answered;
            const std::uint32_t missing =
                announced_to_[static_cast<std::size_t>(peer)] - answered.load(std::memory_order_acquire);
            if (missing != 0) members.push_back(peer);
        }
        return members;
    };
    const auto& bell = group_.block().member(group_.index()).bell;
    group_.wait_for(
        bell, "p2p", group_.deadline(), [&] { return late().empty(); }, late);
    for (const int peer : peers) {
        try {
            taken_.open(peer, group_.block().member(peer).taken);
        } catch (const IpcRefused&) {
            if (group_.is_gone(peer)) continue;  // and its copies with it: a rank drains its streams first
            throw;
        }
        taken_.wait(stream, peer);
    }
}

}  // namespace tandem::comm::ipc
