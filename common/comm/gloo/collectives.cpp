#include "common/comm/gloo/collectives.h"

#include <algorithm>
#include <cstring>

#include "common/align.h"
#include "common/comm/gloo/exchange.h"
#include "common/comm/reduce.h"

namespace tandem::comm::gloo {
namespace {

constexpr std::size_t kSmall = std::size_t{4} << 10;   // items up to here share a message
constexpr std::size_t kWindow = std::size_t{1} << 20;  // bytes from each peer between two reductions

std::size_t count(int n) {
    return static_cast<std::size_t>(n);
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// Others' group indices, the next one first, so that the ranks do not all talk to the same peer at once.
template <typename Visit>
void each_peer(const Group& group, const Visit& visit) {
    for (int step = 1; step < group.size(); ++step) visit((group.index() + step) % group.size());
}

// A part of an item of a list that is worked through window by window.
struct Segment {
    std::size_t item;
    std::size_t begin;
    std::size_t bytes;
};

// The windows of pieces of these sizes laid end to end.
std::vector<std::vector<Segment>> windows_of(const std::vector<std::size_t>& pieces) {
    std::vector<std::vector<Segment>> windows;
    std::size_t room = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        for (std::size_t at = 0; at < pieces[i];) {
            if (room < 8) {  // no element straddles two windows
                windows.emplace_back();
                room = kWindow;
            }
            const std::size_t bytes = std::min(pieces[i] - at, room / 8 * 8);
            windows.back().push_back({i, at, bytes});
            at += bytes;
            room -= std::min(room, (bytes + 7) / 8 * 8);
        }
    }
    return windows;
}

}  // namespace

void OnCpu::all_gather(const std::vector<GatherItem>& items) {
    const auto me = count(group_.index());
    std::vector<std::uint64_t> table;
    std::size_t small = 0;
    for (const auto& item : items) {
        table.push_back(item.send.bytes);
        if (item.send.bytes <= kSmall) small += item.send.bytes;
    }
    Buffer packed(small, "comm_staging");
    std::size_t at = 0;
    for (const auto& item : items) {
        if (item.send.bytes > kSmall) continue;
        copy_bytes(packed.data() + at, item.send.data, item.send.bytes);
        at += item.send.bytes;
    }
    const Call call{.kind = Kind::all_gather, .items = static_cast<std::uint32_t>(items.size())};
    const bool all_small =
        std::all_of(items.begin(), items.end(), [](const auto& item) { return item.send.bytes <= kSmall; });
    const Exchange exchange(group_, call, table, all_small ? ConstSpan(packed.span()) : ConstSpan());

    for (const auto& item : items)
        copy_bytes(item.recv.data + me * item.send.bytes, item.send.data, item.send.bytes);
    Buffer received(exchange.in_line() ? 0 : small * count(group_.size()), "comm_staging");
    Batch batch(group_, kind_name(call.kind), Lane::data, exchange.deadline());
    each_peer(group_, [&](int peer) {
        if (!exchange.in_line()) {
            batch.recv(received.span().subspan(count(peer) * small, small), peer);
            batch.send(packed.span(), peer);
        }
        for (const auto& item : items) {
            if (item.send.bytes <= kSmall) continue;
            batch.recv(item.recv.subspan(count(peer) * item.send.bytes, item.send.bytes), peer);
            batch.send(item.send, peer);
        }
    });
    batch.wait();
    each_peer(group_, [&](int peer) {
        const std::byte* from =
            exchange.in_line() ? exchange.data(peer) : received.data() + count(peer) * small;
        for (const auto& item : items) {
            if (item.send.bytes > kSmall) continue;
            copy_bytes(item.recv.data + count(peer) * item.send.bytes, from, item.send.bytes);
            from += item.send.bytes;
        }
    });
}

void OnCpu::reduce_scatter(const std::vector<ReduceScatterItem>& items, ReduceOp op) {
    const auto me = count(group_.index());
    std::vector<std::uint64_t> table;
    std::vector<std::size_t> pieces;
    for (const auto& item : items) {
        table.push_back(item.send.bytes);
        pieces.push_back(item.recv.bytes);
    }
    for (const auto& item : items) table.push_back(static_cast<std::uint64_t>(item.dtype));
    const Call call{.kind = Kind::reduce_scatter,
                    .op = op,
                    .dtype = items.empty() ? DType::float32 : items[0].dtype,
                    .items = static_cast<std::uint32_t>(items.size())};
    const Exchange exchange(group_, call, table);

    const auto windows = windows_of(pieces);
    const bool alone = group_.size() == 1;
    Buffer staging(alone || windows.empty() ? 0 : kWindow * count(group_.size()), "comm_staging");
    std::vector<const std::byte*> sources(count(group_.size()));
    for (const auto& window : windows) {
        Batch batch(group_, kind_name(call.kind), Lane::data, exchange.deadline());
        std::vector<std::size_t> places;
        std::size_t at = 0;
        for (const Segment& segment : window) {
            places.push_back(at);
            each_peer(group_, [&](int peer) {
                batch.recv(staging.span().subspan(count(peer) * kWindow + at, segment.bytes), peer);
                batch.send(items[segment.item].send.subspan(
                               count(peer) * pieces[segment.item] + segment.begin, segment.bytes),
                           peer);
            });
            at += (segment.bytes + 7) / 8 * 8;
        }
        batch.wait();
        for (std::size_t s = 0; s < window.size(); ++s) {
            const ReduceScatterItem& item = items[window[s].item];
            for (std::size_t m = 0; m < sources.size(); ++m) {
                sources[m] = m == me ? item.send.data + me * item.recv.bytes + window[s].begin
                                     : staging.data() + m * kWindow + places[s];
            }
            reduce(sources, item.recv.data + window[s].begin, window[s].bytes, item.dtype, op,
                   item.accumulate);
        }
    }
}

void OnCpu::all_reduce(Span inout, DType dtype, ReduceOp op) {
    const auto me = count(group_.index());
    const auto n = count(group_.size());
    const Call call{.kind = Kind::all_reduce, .op = op, .dtype = dtype, .items = 1};
    const Exchange exchange(group_, call, {inout.bytes}, inout);
    if (n == 1 || inout.bytes == 0) return;
    std::vector<const std::byte*> sources(n);
    if (exchange.in_line()) {  // everybody reduces all of it
        for (std::size_t m = 0; m < n; ++m) sources[m] = exchange.data(static_cast<int>(m));
        reduce(sources, inout.data, inout.bytes, dtype, op);
        return;
    }
    Buffer staging(kWindow * n, "comm_staging");
    const std::size_t step = kWindow * n;
    for (std::size_t at = 0; at < inout.bytes; at += step) {
        const Span window = inout.subspan(at, std::min(step, inout.bytes - at));
        const std::size_t piece = round_up((window.bytes + n - 1) / n, 64);
        const auto part = [&](std::size_t member) {
            const std::size_t begin = std::min(piece * member, window.bytes);
            return window.subspan(begin, std::min(piece, window.bytes - begin));
        };
        // Member m reduces part m of all, then sends it round.
        Batch parts(group_, kind_name(call.kind), Lane::data, exchange.deadline());
        each_peer(group_, [&](int peer) {
            parts.recv(staging.span().subspan(count(peer) * kWindow, part(me).bytes), peer);
            parts.send(part(count(peer)), peer);
        });
        parts.wait();
        for (std::size_t m = 0; m < n; ++m)
            sources[m] = m == me ? part(me).data : staging.data() + m * kWindow;
        reduce(sources, part(me).data, part(me).bytes, dtype, op);
        Batch wholes(group_, kind_name(call.kind), Lane::data, exchange.deadline());
        each_peer(group_, [&](int peer) {
            wholes.recv(part(count(peer)), peer);
            wholes.send(part(me), peer);
        });
        wholes.wait();
    }
}

void OnCpu::broadcast(Span memory, int root) {
    const bool is_root = group_.index() == root;
    const Call call{.kind = Kind::broadcast, .root = root, .items = 1};
    const Exchange exchange(group_, call, {memory.bytes}, memory);
    if (exchange.in_line()) {
        if (!is_root) copy_bytes(memory.data, exchange.data(root), memory.bytes);
        return;
    }
    Batch batch(group_, kind_name(call.kind), Lane::data, exchange.deadline());
    if (!is_root) batch.recv(memory, root);
    if (is_root) each_peer(group_, [&](int peer) { batch.send(memory, peer); });
    batch.wait();
}

void OnCpu::all_to_all(const AllToAllItem& item) {
    std::vector<std::uint64_t> table(item.send_bytes.begin(), item.send_bytes.end());
    table.insert(table.end(), item.recv_bytes.begin(), item.recv_bytes.end());
    const Call call{.kind = Kind::all_to_all, .items = static_cast<std::uint32_t>(group_.size())};
    const Exchange exchange(group_, call, table);
    Batch batch(group_, kind_name(call.kind), Lane::data, exchange.deadline());
    std::size_t from = 0;
    std::size_t to = 0;
    for (int peer = 0; peer < group_.size(); ++peer) {
        const ConstSpan send = item.send.subspan(from, item.send_bytes[count(peer)]);
        const Span recv = item.recv.subspan(to, item.recv_bytes[count(peer)]);
        from += send.bytes;
        to += recv.bytes;
        if (peer == group_.index()) {
            copy_bytes(recv.data, send.data, send.bytes);
            continue;
        }
        batch.recv(recv, peer);
        batch.send(send, peer);
    }
    batch.wait();
}

void OnCpu::barrier() {
    const Exchange exchange(group_, {.kind = Kind::barrier}, {});
}

}  // namespace tandem::comm::gloo
