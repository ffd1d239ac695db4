#include "common/comm/ipc/gpu_collectives.h"

#include <algorithm>

#include "common/align.h"
#include "common/comm/ipc/rank.h"
#include "common/comm/reduce_on_gpu.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

constexpr std::size_t kWindow = std::size_t{32} << 20;

std::size_t as_size(int n) {
    return static_cast<std::size_t>(n);
}

template <typename T>
std::vector<T> gather_host(OnCpu& on_cpu, int members, const std::vector<T>& own) {
    std::vector<T> all(own.size() * as_size(members));
    const std::size_t bytes = own.size() * sizeof(T);
    const GatherItem item{{reinterpret_cast<const std::byte*>(own.data()), bytes},
                          {reinterpret_cast<std::byte*>(all.data()), bytes * as_size(members)}};
    on_cpu.all_gather({item});
    return all;
}

}  // namespace

// One call: the members' items, and the windows that staged data passes through. As Exchange, on the GPU.
class GpuCall {
  public:
    GpuCall(GpuGroup& gpu, Stream& stream, PostHeader header)
        : gpu_(gpu),
          stream_(stream),
          what_(kind_name(header.kind)),
          deadline_(gpu.group_.deadline()),
          exchange_(gpu.group_, gpu.on_cpu_.scratch(), on_gpu(header)) {}

    // As Exchange::add(): what this rank shows of the item, or null.
    void add(std::uint64_t bytes, const std::byte* send, std::uint64_t extra = 0) {
        exchange_.add(bytes, nullptr, extra);
        shown_.push_back({bytes, linear_, bytes == 0 ? nullptr : send, {}, false});
        linear_ += round_up(bytes, 256);
    }

    void post() {
        exchange_.post();
        const std::vector<std::uint64_t> sizes = checked_sizes();  // before the scratch memory is used again
        if (gpu_.turns_.empty()) gpu_.make_turns();
        std::uint64_t staged_bytes = 0;
        for (Item& item : shown_) {
            if (item.send == nullptr) continue;
            item.place = gpu_.gpu_->pool().place_of({item.send, item.bytes});
            item.staged = item.place.pid == 0 && gpu_.group_.size() > 1;
            if (item.staged) staged_bytes = linear_;
        }
        if (staged_bytes > 0) {
            staging_ = gpu_.staging(std::min<std::size_t>(staged_bytes, kWindow), stream_);
            const Place place = gpu_.gpu_->pool().place_of(staging_);
            for (Item& item : shown_) {
                if (item.staged) item.place = place;
            }
        }
        own_items_ = shown_.size();
        all_ = gather_host(gpu_.on_cpu_, gpu_.group_.size(), shown_);
        check_items(sizes);
        std::uint64_t longest = 0;
        bool staged = false;
        for (const Item& item : all_) {
            longest = std::max(longest, item.linear + item.bytes);
            staged = staged || item.staged;
        }
        rounds_ = staged ? std::max<std::uint64_t>(1, (longest + kWindow - 1) / kWindow) : 1;
        stage();
        sync();
    }

    bool next_round() {
        sync();  // all have read this window
        if (round_ + 1 >= rounds_) return false;
        ++round_;
        stage();
        sync();
        return true;
    }

    void sync() { gpu_.sync(stream_, what_, deadline_); }

    std::pair<std::uint64_t, std::uint64_t> window(int member, std::size_t index) const {
        const Item& it = item(member, index);
        if (rounds_ == 1) return {0, it.bytes};
        const std::uint64_t low = std::max(round_ * kWindow, it.linear);
        const std::uint64_t high = std::min((round_ + 1) * kWindow, it.linear + it.bytes);
        if (low >= high) return {0, 0};
        return {low - it.linear, high - it.linear};
    }

    // The address at which this rank's stream reads `bytes` bytes; for its own item, the caller's memory.
    const std::byte* at(int member, std::size_t index, std::uint64_t position, std::uint64_t bytes) const {
        if (member == gpu_.group_.index()) return shown_[index].send + position;
        const Item& it = item(member, index);
        return gpu_.gpu_->reach(it.place, it.staged ? it.linear + position - round_ * kWindow : position,
                                bytes);
    }

    // The address at which peers read the byte of this rank's item.
    std::byte* shown(std::size_t index, std::uint64_t position) const {
        const Item& it = shown_[index];
        if (it.staged) return staging_.data + it.linear + position - round_ * kWindow;
        return const_cast<std::byte*>(it.send) + position;
    }

  private:
    struct Item {
        std::uint64_t bytes;
        std::uint64_t linear;
        const std::byte* send;
        Place place;
        bool staged;
    };

    static PostHeader on_gpu(PostHeader header) {
        header.on_gpu = 1;
        return header;
    }
    const Item& item(int member, std::size_t index) const {
        return all_[as_size(member) * own_items_ + index];
    }

    std::vector<std::uint64_t> checked_sizes() const {
        std::vector<std::uint64_t> sizes;
        for (int member = 0; member < gpu_.group_.size() && gpu_.group_.size() > 1; ++member) {
            for (std::size_t i = 0; i < shown_.size(); ++i) sizes.push_back(exchange_.item(member, i).bytes);
        }
        return sizes;
    }
    // Against those that all have agreed on.
    void check_items(const std::vector<std::uint64_t>& sizes) const {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            if (all_[i].bytes != sizes[i])
                throw ProtocolError(fmt::format("{}: {} has {} bytes of item {}, and said {}", what_,
                                                gpu_.group_.rank_name(static_cast<int>(i / own_items_)),
                                                all_[i].bytes, i % own_items_, sizes[i]));
        }
    }

    void stage() {
        for (std::size_t i = 0; i < shown_.size(); ++i) {
            if (!shown_[i].staged) continue;
            const auto [begin, end] = window(gpu_.group_.index(), i);
            if (begin >= end) continue;
            copy(stream_, {shown_[i].send + begin, end - begin}, {shown(i, begin), end - begin});
        }
    }

    GpuGroup& gpu_;
    Stream& stream_;
    const char* what_;
    Deadline deadline_;
    Exchange exchange_;
    std::vector<Item> shown_;
    std::vector<Item> all_;  // [member, item]
    std::size_t own_items_ = 0;
    std::uint64_t linear_ = 0;
    Span staging_;
    std::uint64_t round_ = 0;
    std::uint64_t rounds_ = 1;
};

GpuGroup::GpuGroup(Group& group, OnCpu& on_cpu, std::shared_ptr<Gpu> gpu)
    : group_(group),
      on_cpu_(on_cpu),
      gpu_(std::move(gpu)),
      sent_(gpu_->device(), group.size(), group.index()),
      taken_(gpu_->device(), group.size(), group.index()),
      announced_to_(as_size(group.size())),
      staging_(gpu_->make_staging()) {
    MemberState& self = group_.block().member(group_.index());
    self.sent = sent_.offer();
    self.taken = taken_.offer();
}

void GpuGroup::make_turns() {
    std::vector<EventOffer> offers;
    for (int i = 0; i < 2; ++i) {
        turns_.push_back(std::make_unique<SyncEvents>(gpu_->device(), group_.size(), group_.index()));
        offers.push_back(turns_.back()->offer());
    }
    const auto all = gather_host(on_cpu_, group_.size(), offers);
    for (int member = 0; member < group_.size(); ++member) {
        for (std::size_t turn = 0; turn < 2; ++turn)
            turns_[turn]->open(member, all[as_size(member) * offers.size() + turn]);
    }
    on_cpu_.barrier();  // no rank ends before all have opened its events
}

Span GpuGroup::staging(std::size_t bytes, Stream& stream) {
    if (staging_->bytes() < bytes) {
        stream.synchronize();
        *staging_ = Buffer();
        *staging_ = Buffer(bytes, "comm_staging", gpu_->pool());
    }
    return staging_->span();
}

void GpuGroup::sync(Stream& stream, const char* what, Deadline deadline) {
    SyncEvents& events = *turns_[syncs_++ % 2];
    events.record(stream);
    group_.meet(what, deadline);
    events.wait_all(stream);
}

void GpuGroup::barrier(Stream& stream) {
    Exchange exchange(group_, on_cpu_.scratch(), {.kind = Kind::barrier, .on_gpu = 1});
    exchange.post();
    if (turns_.empty()) make_turns();
    sync(stream, kind_name(Kind::barrier), group_.deadline());
}

void GpuGroup::all_gather(const std::vector<GatherItem>& items, Stream& stream) {
    GpuCall call(*this, stream, {.kind = Kind::all_gather});
    for (const auto& item : items) call.add(item.send.bytes, item.send.data);
    call.post();
    do {
        // Each rank starts at itself, so that the ranks do not all read the same peer at once.
        for (int step = 0; step < group_.size(); ++step) {
            const int peer = (group_.index() + step) % group_.size();
            for (std::size_t i = 0; i < items.size(); ++i) {
                const auto [begin, end] = call.window(peer, i);
                if (begin >= end) continue;
                const ConstSpan from{call.at(peer, i, begin, end - begin), end - begin};
                const Span to =
                    items[i].recv.subspan(as_size(peer) * items[i].send.bytes + begin, end - begin);
                if (from.data != to.data) copy(stream, from, to);
            }
        }
    } while (call.next_round());
}

void GpuGroup::reduce_scatter(const std::vector<ReduceScatterItem>& items, ReduceOp op, Stream& stream) {
    const DType dtype = items.empty() ? DType::float32 : items[0].dtype;
    GpuCall call(*this, stream, {.kind = Kind::reduce_scatter, .op = op, .dtype = dtype});
    for (const auto& item : items)
        call.add(item.send.bytes, item.send.data, static_cast<std::uint64_t>(item.dtype));
    call.post();
    std::vector<const std::byte*> sources(as_size(group_.size()));
    do {
        for (std::size_t i = 0; i < items.size(); ++i) {
            const std::uint64_t piece = items[i].recv.bytes;
            const std::uint64_t mine = piece * static_cast<std::uint64_t>(group_.index());
            const auto [shown_begin, shown_end] = call.window(group_.index(), i);
            const std::uint64_t begin = std::max(shown_begin, mine);
            const std::uint64_t end = std::min(shown_end, mine + piece);
            if (begin >= end) continue;
            for (int m = 0; m < group_.size(); ++m) sources[as_size(m)] = call.at(m, i, begin, end - begin);
            reduce_on_gpu(stream, sources, items[i].recv.data + (begin - mine), end - begin, items[i].dtype,
                          op, items[i].accumulate);
        }
    } while (call.next_round());
}

void GpuGroup::all_reduce(Span inout, DType dtype, ReduceOp op, Stream& stream) {
    if (group_.size() == 1) return group_.job().throw_if_aborted(group_.phase("all_reduce"));
    GpuCall call(*this, stream, {.kind = Kind::all_reduce, .op = op, .dtype = dtype});
    call.add(inout.bytes, inout.data);
    call.post();
    std::vector<const std::byte*> sources(as_size(group_.size()));
    const auto n = static_cast<std::uint64_t>(group_.size());
    do {
        const auto window = call.window(group_.index(), 0);
        const std::uint64_t piece = ((window.second - window.first + n - 1) / n + 63) / 64 * 64;
        const auto piece_of = [&](int member) {
            const std::uint64_t begin =
                std::min(window.first + piece * static_cast<std::uint64_t>(member), window.second);
            return std::pair{begin, std::min(begin + piece, window.second)};
        };
        // A rank writes its reduced piece where peers read it; no other rank needs the input of that piece.
        const auto [begin, end] = piece_of(group_.index());
        std::byte* reduced = inout.bytes == 0 ? nullptr : call.shown(0, begin);
        if (begin < end) {
            for (int m = 0; m < group_.size(); ++m) sources[as_size(m)] = call.at(m, 0, begin, end - begin);
            reduce_on_gpu(stream, sources, reduced, end - begin, dtype, op);
        }
        call.sync();
        for (int step = 0; step < group_.size(); ++step) {
            const int peer = (group_.index() + step) % group_.size();
            const auto [from, to] = piece_of(peer);
            if (from >= to) continue;
            const std::byte* source = step == 0 ? reduced : call.at(peer, 0, from, to - from);
            if (source != inout.data + from)
                copy(stream, {source, to - from}, inout.subspan(from, to - from));
        }
    } while (call.next_round());
}

void GpuGroup::broadcast(Span memory, int root, Stream& stream) {
    const bool is_root = group_.index() == root;
    GpuCall call(*this, stream, {.kind = Kind::broadcast, .root = root});
    call.add(memory.bytes, is_root ? memory.data : nullptr);
    call.post();
    do {
        const auto [begin, end] = call.window(root, 0);
        if (!is_root && begin < end)
            copy(stream, {call.at(root, 0, begin, end - begin), end - begin},
                 memory.subspan(begin, end - begin));
    } while (call.next_round());
}

void GpuGroup::all_to_all(const AllToAllItem& item, Stream& stream) {
    GpuCall call(*this, stream, {.kind = Kind::all_to_all});
    const auto me = as_size(group_.index());
    std::size_t sent = 0;
    for (std::size_t p = 0; p < as_size(group_.size()); ++p) {
        call.add(item.send_bytes[p], item.send.data + sent, item.recv_bytes[p]);
        sent += item.send_bytes[p];
    }
    call.post();
    do {
        std::size_t to = 0;
        for (int peer = 0; peer < group_.size(); ++peer) {
            const auto [begin, end] = call.window(peer, me);
            if (begin < end)
                copy(stream, {call.at(peer, me, begin, end - begin), end - begin},
                     item.recv.subspan(to + begin, end - begin));
            to += item.recv_bytes[as_size(peer)];
        }
    } while (call.next_round());
}

}  // namespace tandem::comm::ipc
