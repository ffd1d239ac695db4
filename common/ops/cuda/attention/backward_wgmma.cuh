// Flash attention, backward, for a Hopper, without atomics: backward_mma.cuh says what is summed. A thread fetches the
// tiles. Scores and their gradients stay in registers, where they are the weights of the products behind them.
#pragma once

#include "common/ops/cuda/attention/backward_fp32.cuh"
#include "common/ops/cuda/attention/backward_keys_wgmma.cuh"
#include "common/ops/cuda/attention/backward_queries_wgmma.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// `list`: segments that share no keys; k_rows: of k and v.

template <typename Tile>
TensorMap query_map(const BackwardInputs& b, const std::byte* rows) {
    return tensor_map<Tile>(rows, b.in.q_rows, b.in.heads, b.in.head_dim);
}

template <int kDim>
void keys_by_wgmma(Work& work, BackwardInputs b, const Gradients& g,
                   const std::vector<AttentionSegment>& list, std::int64_t k_rows) {
    using Shape = KeyGradientShape<kDim>;
    using Own = typename Shape::Own;
    using Walked = typename Shape::Walked;
    Tiling keys, queries;
    std::vector<std::int64_t> begins;
    for (const AttentionSegment& segment : list) {
        begins.push_back(queries.tiles() * Shape::kWalked);
        keys.add(segment, segment.k_len, Shape::kRows);
        queries.add(segment, segment.q_len, Shape::kWalked);
    }

    // What the queries are known by.
    AttentionInputs by_query = b.in;
    queries.upload(work, by_query);
    b.padded_begin = work.table(begins);
    b.padded_rows = queries.tiles() * Shape::kWalked;
    const std::int64_t items = b.in.heads * b.padded_rows;
    auto* const statistics = work.scratch<RowStatistics>(items);
    work.launch(statistics_kernel, ceil_div(items, kTileThreads), kTileThreads, 0, by_query, g.lse, g.delta,
                b.padded_rows, std::int64_t{Shape::kWalked}, statistics);
    b.statistics = statistics;

    keys.upload(work, b.in);
    work.launch(key_wgmma_kernel<Shape>, keys.tiles() * b.in.kv_heads, Shape::kBlockThreads, Shape::kBytes,
                KeyGradientWork{query_map<Walked>(b, b.in.q.data), query_map<Walked>(b, b.dout),
                                tensor_map<Own>(b.in.k.data, k_rows, b.in.kv_heads, b.in.head_dim),
                                tensor_map<Own>(b.in.v.data, k_rows, b.in.kv_heads, b.in.head_dim), b});
}

template <int kDim>
void queries_by_wgmma(Work& work, BackwardInputs b, const Gradients& g,
                      const std::vector<std::vector<AttentionSegment>>& lists, std::int64_t k_rows) {
    using Shape = QueryGradientShape<kDim>;
    using Own = typename Shape::Own;
    using Walked = typename Shape::Walked;
    Tiling queries;
    for (const auto& list : lists) {
        for (const AttentionSegment& segment : list) queries.add(segment, segment.q_len, Shape::kRows);
    }
    if (queries.tiles() == 0) return;
    queries.upload(work, b.in);
    work.launch(query_wgmma_kernel<Shape>, queries.tiles() * b.in.heads, Shape::kBlockThreads, Shape::kBytes,
                QueryGradientWork{query_map<Own>(b, b.in.q.data), query_map<Own>(b, b.dout),
                                  tensor_map<Walked>(b.in.k.data, k_rows, b.in.kv_heads, b.in.head_dim),
                                  tensor_map<Walked>(b.in.v.data, k_rows, b.in.kv_heads, b.in.head_dim), b,
                                  queries.tiles(), g.lse, g.delta});
}

template <int kDim>
void backward_wgmma(Work& work, BackwardInputs b, const Gradients& g,
                    const std::vector<std::vector<AttentionSegment>>& lists, std::int64_t k_rows) {
    queries_by_wgmma<kDim>(work, b, g, lists, k_rows);
    for (const auto& list : lists) {
        keys_by_wgmma<kDim>(work, b, g, list, k_rows);
        b.writes.dk_dv = false;  // the next ones may have rows of these
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
