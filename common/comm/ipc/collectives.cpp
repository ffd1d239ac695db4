#include "common/comm/ipc/collectives.h"

#include <algorithm>
#include <cstring>

#include "common/align.h"
#include "common/comm/ipc/rank.h"
#include "common/comm/reduce.h"

namespace tandem::comm::ipc {
namespace {

// From so many received bytes on, what a reduce-scatter writes first has left the caches before what it writes last is there.
constexpr std::size_t kPastCaches = std::size_t{2} << 20;

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// Readable addresses of the same piece of every member, in rank order.
class Sources {
  public:
    explicit Sources(const Exchange& exchange, int size)
        : exchange_(exchange), at_(static_cast<std::size_t>(size)) {}
    std::span<const std::byte* const> of(std::size_t item, std::uint64_t position, std::uint64_t bytes) {
        for (std::size_t m = 0; m < at_.size(); ++m)
            at_[m] = exchange_.at(static_cast<int>(m), item, position, bytes);
        return at_;
    }

  private:
    const Exchange& exchange_;
    std::vector<const std::byte*> at_;
};

// All ranks receive into the very same memory: each writes its own part only.
bool is_shared(const Exchange& exchange, int size, std::size_t item) {
    if (size == 1) return false;
    const std::uint64_t first = exchange.item(0, item).extra;
    if (first == kNowhere) return false;
    for (int m = 1; m < size; ++m) {
        if (exchange.item(m, item).extra != first) return false;
    }
    return true;
}

}  // namespace

void OnCpu::all_gather(const std::vector<GatherItem>& items) {
    Exchange exchange(group_, scratch_, {.kind = Kind::all_gather});
    const bool one = group_.size() == 1;
    for (const auto& item : items) {
        exchange.add(item.send.bytes, item.send.data, one ? kNowhere : group_.job().offset_of(item.recv));
    }
    exchange.post();
    std::vector<bool> shared(items.size());
    bool any_shared = false;
    for (std::size_t i = 0; i < items.size(); ++i) {
        shared[i] = items[i].send.bytes > 0 && is_shared(exchange, group_.size(), i);
        any_shared = any_shared || shared[i];
    }
    do {
        // Each rank starts at itself, so that the ranks do not all read the same peer at once.
        for (int step = 0; step < group_.size(); ++step) {
            const int peer = (group_.index() + step) % group_.size();
            for (std::size_t i = 0; i < items.size(); ++i) {
                if (shared[i] && step > 0) continue;
                const auto [begin, end] = exchange.window(peer, i);
                if (begin >= end) continue;
                std::byte* to = items[i].recv.data + static_cast<std::size_t>(peer) * items[i].send.bytes;
                copy_bytes(to + begin, exchange.at(peer, i, begin, end - begin), end - begin);
            }
        }
    } while (exchange.next_round());
    exchange.finish(any_shared);
}

void OnCpu::reduce_scatter(const std::vector<ReduceScatterItem>& items, ReduceOp op) {
    const DType dtype = items.empty() ? DType::float32 : items[0].dtype;
    Exchange exchange(group_, scratch_, {.kind = Kind::reduce_scatter, .op = op, .dtype = dtype});
    std::size_t received = 0;
    for (const auto& item : items) {
        exchange.add(item.send.bytes, item.send.data, static_cast<std::uint64_t>(item.dtype));
        received += item.recv.bytes;
    }
    exchange.post();
    Sources sources(exchange, group_.size());
    do {
        for (std::size_t i = 0; i < items.size(); ++i) {
            const std::uint64_t piece = items[i].recv.bytes;
            const std::uint64_t mine = piece * static_cast<std::uint64_t>(group_.index());
            const auto [shown_begin, shown_end] = exchange.window(group_.index(), i);
            const std::uint64_t begin = std::max(shown_begin, mine);
            const std::uint64_t end = std::min(shown_end, mine + piece);
            if (begin >= end) continue;
            reduce(sources.of(i, begin, end - begin), items[i].recv.data + (begin - mine), end - begin,
                   items[i].dtype, op, items[i].accumulate, received >= kPastCaches);
        }
    } while (exchange.next_round());
    exchange.finish();
}

void OnCpu::all_reduce(Span inout, DType dtype, ReduceOp op) {
    if (group_.size() == 1) {
        group_.job().throw_if_aborted(group_.phase("all_reduce"));
        return;
    }
    Exchange exchange(group_, scratch_, {.kind = Kind::all_reduce, .op = op, .dtype = dtype});
    exchange.add(inout.bytes, inout.data);
    exchange.post();
    Sources sources(exchange, group_.size());
    if (inout.bytes <= Exchange::kInlineBytes) {
        // All data came with the posts: every rank reduces all of it.
        if (inout.bytes > 0) reduce(sources.of(0, 0, inout.bytes), inout.data, inout.bytes, dtype, op);
        return;
    }
    const auto n = static_cast<std::uint64_t>(group_.size());
    do {
        const auto window = exchange.window(group_.index(), 0);
        const std::uint64_t piece = round_up((window.second - window.first + n - 1) / n, 64);
        const auto piece_of = [&](int member) {
            const std::uint64_t begin =
                std::min(window.first + piece * static_cast<std::uint64_t>(member), window.second);
            return std::pair{begin, std::min(begin + piece, window.second)};
        };
        // A rank writes its reduced piece where peers read it; of that piece nobody else needs the input any
        // more.
        const auto [begin, end] = piece_of(group_.index());
        std::byte* reduced = exchange.shown(0, begin);
        if (begin < end) reduce(sources.of(0, begin, end - begin), reduced, end - begin, dtype, op);
        exchange.meet(kind_name(Kind::all_reduce));
        for (int step = 0; step < group_.size(); ++step) {
            const int peer = (group_.index() + step) % group_.size();
            const auto [from, to] = piece_of(peer);
            if (from >= to) continue;
            copy_bytes(inout.data + from, step == 0 ? reduced : exchange.at(peer, 0, from, to - from),
                       to - from);
        }
    } while (exchange.next_round());
    exchange.finish();
}

void OnCpu::broadcast(Span memory, int root) {
    Exchange exchange(group_, scratch_, {.kind = Kind::broadcast, .root = root});
    const bool is_root = group_.index() == root;
    exchange.add(memory.bytes, is_root ? memory.data : nullptr);
    exchange.post();
    do {
        const auto [begin, end] = exchange.window(root, 0);
        if (!is_root && begin < end)
            copy_bytes(memory.data + begin, exchange.at(root, 0, begin, end - begin), end - begin);
    } while (exchange.next_round());
    exchange.finish();
}

void OnCpu::all_to_all(const AllToAllItem& item) {
    Exchange exchange(group_, scratch_, {.kind = Kind::all_to_all});
    const auto n = static_cast<std::size_t>(group_.size());
    const auto me = static_cast<std::size_t>(group_.index());
    std::vector<std::size_t> recv_at(n);
    std::size_t sent = 0;
    std::size_t received = 0;
    for (std::size_t p = 0; p < n; ++p) {
        exchange.add(item.send_bytes[p], item.send.data + sent, item.recv_bytes[p]);
        recv_at[p] = received;
        sent += item.send_bytes[p];
        received += item.recv_bytes[p];
    }
    exchange.post();
    do {
        for (std::size_t step = 0; step < n; ++step) {
            const std::size_t peer = (me + step) % n;
            const auto [begin, end] = exchange.window(static_cast<int>(peer), me);
            if (begin >= end) continue;
            copy_bytes(item.recv.data + recv_at[peer] + begin,
                       exchange.at(static_cast<int>(peer), me, begin, end - begin), end - begin);
        }
    } while (exchange.next_round());
    exchange.finish();
}

void OnCpu::barrier() {
    Exchange exchange(group_, scratch_, {.kind = Kind::barrier});
    exchange.post();
}

}  // namespace tandem::comm::ipc
