// The backward of attention: tensor cores for bfloat16 whose rows they can take, float32 for the others.
#include <algorithm>

#include "common/ops/attention.h"
#include "common/ops/cuda/attention/backward_fp32.cuh"
#include "common/ops/cuda/attention/backward_keys_mma.cuh"
#include "common/ops/cuda/attention/backward_queries_mma.cuh"
#include "common/ops/cuda/attention/backward_wgmma.cuh"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

using Lists = std::vector<std::vector<AttentionSegment>>;

// Zeros in all rows but the `kept` ones (begin, length), which share none.
void clear_others(Work& work, const Tensor& rows, std::vector<std::pair<std::int64_t, std::int64_t>> kept) {
    if (rows.dim(0) == 0) return;
    const std::int64_t row_bytes = static_cast<std::int64_t>(rows.bytes()) / rows.dim(0);
    kept.emplace_back(rows.dim(0), 0);
    std::sort(kept.begin(), kept.end());
    std::int64_t done = 0;
    for (const auto& [begin, length] : kept) {
        if (begin > done) {
            work.clear(rows.raw() + done * row_bytes, static_cast<std::size_t>((begin - done) * row_bytes));
        }
        done = begin + length;
    }
}

// What the kernels that write do not write: the first list's write dk and dv, later ones add to them.
void clear_unwritten(Work& work, const Lists& lists, const GradientWrites& writes, const Tensor& dq,
                     const Tensor& dk, const Tensor& dv) {
    std::vector<std::pair<std::int64_t, std::int64_t>> queries, keys;
    for (const auto& list : lists) {
        for (const AttentionSegment& segment : list) {
            queries.emplace_back(segment.q_begin, segment.q_len);
            if (&list == &lists.front()) keys.emplace_back(segment.k_begin, segment.k_len);
        }
    }
    if (writes.dq) clear_others(work, dq, queries);
    if (!writes.dk_dv) return;
    clear_others(work, dk, keys);
    clear_others(work, dv, keys);
}

template <int kDim>
void keys_by_fp32(Work& work, AttentionInputs in, Gradients g, const Lists& lists) {
    for (const auto& list : lists) {
        Tiling keys;
        for (const AttentionSegment& segment : list) keys.add(segment, segment.k_len, kBackwardTile<kDim>);
        keys.upload(work, in);
        work.launch(key_fp32_kernel<kDim>, keys.tiles() * in.kv_heads, kTileThreads,
                    backward_fp32_bytes<kDim>(), in, g);
        g.writes.dk_dv = false;  // the next ones may have rows of these
    }
}

template <int kDim>
void queries_by_fp32(Work& work, AttentionInputs in, const Gradients& g, const Lists& lists) {
    Tiling queries;
    for (const auto& list : lists) {
        for (const AttentionSegment& segment : list) queries.add(segment, segment.q_len, kBackwardTile<kDim>);
    }
    if (queries.tiles() == 0) return;
    queries.upload(work, in);
    work.launch(query_fp32_kernel<kDim>, queries.tiles() * in.heads, kTileThreads,
                backward_fp32_bytes<kDim>(), in, g);
}

// The tensor-core kernels copy rows sixteen bytes at a time, add to float32 two numbers at a time, and count a
// segment's positions in 32 bits.
bool by_tensor_cores(const AttentionInputs& in, const Gradients& g, const Lists& lists) {
    for (const Elements* const rows : {&in.q, &in.k, &in.v, &g.dout}) {
        if (!rows->is_bfloat16 || !rows->vector) return false;
    }
    for (const float* const sums : {g.dq, g.dk, g.dv}) {
        if (reinterpret_cast<std::uintptr_t>(sums) % sizeof(Pair) != 0) return false;
    }
    for (const auto& list : lists) {
        for (const AttentionSegment& segment : list) {
            if (std::max(segment.q_len, segment.k_len) >= kDividends / 4) return false;
        }
    }
    return in.head_dim <= 256;
}

// Where the queries of a list's segments begin in the padded rows, `padded` of which have been given away.
template <int kDim>
std::vector<std::int64_t> padded_begins(const std::vector<AttentionSegment>& list, std::int64_t& padded) {
    std::vector<std::int64_t> begins;
    for (const AttentionSegment& segment : list) {
        begins.push_back(padded);
        padded += ceil_div(segment.q_len, QueriesKernel<kDim>::kQueries) * QueriesKernel<kDim>::kQueries;
    }
    return begins;
}

template <int kDim, KeyGradients kMakes>
void launch_keys(Work& work, const BackwardInputs& b, std::int64_t tiles) {
    using Kernel = KeysKernel<kDim, kMakes>;
    static_assert(QueriesKernel<kDim>::kQueries % Kernel::kQueries == 0, "whole stages of statistics");
    work.launch(keys_mma_kernel<kDim, kMakes>, tiles * b.in.kv_heads, Kernel::kThreads, Kernel::kSharedBytes,
                b);
}

template <int kDim>
void keys_by_mma(Work& work, BackwardInputs b, const Lists& lists) {
    std::int64_t padded = 0;
    for (const auto& list : lists) {
        Tiling keys;
        for (const AttentionSegment& segment : list)
            keys.add(segment, segment.k_len, KeysKernel<kDim, KeyGradients::dv>::kKeys);
        keys.upload(work, b.in);
        b.padded_begin = work.table(padded_begins<kDim>(list, padded));
        if constexpr (kDim > 128) {
            launch_keys<kDim, KeyGradients::dv>(work, b, keys.tiles());
            launch_keys<kDim, KeyGradients::dk>(work, b, keys.tiles());
        } else {
            launch_keys<kDim, KeyGradients::both>(work, b, keys.tiles());
        }
        b.writes.dk_dv = false;  // the next ones may have rows of these
    }
}

// The statistics of all queries, padded to whole tiles of them; b takes the tiles of queries.
template <int kDim>
Tiling upload_queries(Work& work, BackwardInputs& b, const Gradients& g, const Lists& lists) {
    constexpr std::int64_t kTile = QueriesKernel<kDim>::kQueries;
    Tiling queries;
    std::vector<std::int64_t> begins;
    for (const auto& list : lists) {
        for (const AttentionSegment& segment : list) queries.add(segment, segment.q_len, kTile);
        for (const std::int64_t begin : padded_begins<kDim>(list, b.padded_rows)) begins.push_back(begin);
    }
    if (queries.tiles() == 0) return queries;
    queries.upload(work, b.in);
    b.padded_begin = work.table(begins);
    const std::int64_t items = b.in.heads * b.padded_rows;
    auto* const statistics = work.scratch<RowStatistics>(items);
    work.launch(statistics_kernel, ceil_div(items, kTileThreads), kTileThreads, 0, b.in, g.lse, g.delta,
                b.padded_rows, kTile, statistics);
    b.statistics = statistics;
    return queries;
}

BackwardInputs backward_inputs(const AttentionInputs& in, const Gradients& g) {
    BackwardInputs b{};
    b.in = in;
    b.dout = g.dout.data;
    b.exponent_scale = in.scale * kLog2E;
    b.dq = g.dq;
    b.dk = g.dk;
    b.dv = g.dv;
    b.writes = g.writes;
    return b;
}

template <int kDim>
void backward_mma(Work& work, const AttentionInputs& in, const Gradients& g, const Lists& lists) {
    BackwardInputs b = backward_inputs(in, g);
    const Tiling queries = upload_queries<kDim>(work, b, g, lists);
    keys_by_mma<kDim>(work, b, lists);
    using Kernel = QueriesKernel<kDim>;
    work.launch(queries_mma_kernel<kDim>, queries.tiles() * in.heads, Kernel::kThreads, Kernel::kSharedBytes,
                b, queries.tiles());
}

}  // namespace

void attention_backward(Stream& stream, const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& lse, const Tensor& delta, const std::vector<AttentionSegment>& segments,
                        float scale, Tensor dq, Tensor dk, Tensor dv, GradientWrites writes) {
    Work work(stream, "attention_backward");
    const AttentionInputs in = attention_inputs(q, k, v, scale);
    const Gradients g{elements(dout, in.head_dim),
                      lse.data<float>(),
                      delta.data<float>(),
                      dq.data<float>(),
                      dk.data<float>(),
                      dv.data<float>(),
                      writes};
    const Lists lists = without_shared_keys(segments);
    clear_unwritten(work, lists, writes, dq, dk, dv);
    if (by_tensor_cores(in, g, lists)) {
        if (in.head_dim <= 128 && on_hopper(stream) && fits_boxes(in, k.dim(0))) {
            const BackwardInputs b = backward_inputs(in, g);
            if (in.head_dim <= 64) return backward_wgmma<64>(work, b, g, lists, k.dim(0));
            return backward_wgmma<128>(work, b, g, lists, k.dim(0));
        }
        with_mma_head_dim(in.head_dim, [&]<int kDim>() { backward_mma<kDim>(work, in, g, lists); });
        return;
    }
    with_head_dim("attention_backward", in.head_dim, [&]<int kDim>() {
        keys_by_fp32<kDim>(work, in, g, lists);
        queries_by_fp32<kDim>(work, in, g, lists);
    });
}

}  // namespace tandem::ops::TANDEM_KERNELS
