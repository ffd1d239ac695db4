// Attention of pieces of sequences over a paged cache: the forward's kernels, which find their keys in pages.
#include <algorithm>

#include "common/ops/attention.h"
#include "common/ops/cuda/attention/forward_fp32.cuh"
#include "common/ops/cuda/attention/forward_mma.cuh"
#include "common/ops/cuda/tensor_map.cuh"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kGatherThreads = 256;

// Row i of the packed keys is that of slot slots[i] in the cache.
__global__ void __launch_bounds__(kGatherThreads)
    gather_kernel(Elements cache, const std::int32_t* slots, std::int64_t rows, std::int64_t row,
                  Elements packed) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < rows * row;
         at += step) {
        store1(packed, at, load1(cache, slots[at / row] * row + at % row));
    }
}

// The segments with their keys at k_begin of what holds the keys (or the pages) of all of them.
std::vector<AttentionSegment> segments_of(const std::vector<PagedSegment>& pieces, bool in_pages) {
    std::vector<AttentionSegment> segments;
    std::int64_t begin = 0;
    for (const PagedSegment& piece : pieces) {
        segments.push_back({piece.q_begin, piece.q_len, begin, piece.k_len, true});
        begin += in_pages ? static_cast<std::int64_t>(piece.pages.size()) : piece.k_len;
    }
    return segments;
}

Elements gathered(Work& work, const Elements& cache, const std::vector<std::int32_t>& slots,
                  const std::int32_t* there, std::int64_t row) {
    const auto rows = static_cast<std::int64_t>(slots.size());
    Elements packed = cache;
    packed.data = work.scratch(static_cast<std::size_t>(rows * row) * (cache.is_bfloat16 ? 2 : 4));
    work.launch(gather_kernel, std::min(ceil_div(rows * row, kGatherThreads), kGridBlocks), kGatherThreads, 0,
                cache, there, rows, row, packed);
    return packed;
}

// Without tensor cores, over a packed copy of the keys and values.
void prefill_fp32(Work& work, AttentionInputs in, const std::vector<PagedSegment>& pieces,
                  std::int64_t page_size, const ForwardOut& out) {
    std::vector<std::int32_t> slots;
    for (const PagedSegment& piece : pieces) {
        for (std::int64_t i = 0; i < piece.k_len; ++i) {
            slots.push_back(static_cast<std::int32_t>(
                piece.pages[static_cast<std::size_t>(i / page_size)] * page_size + i % page_size));
        }
    }
    const std::int32_t* const there = work.upload(slots);
    in.k = gathered(work, in.k, slots, there, in.kv_heads * in.head_dim);
    in.v = gathered(work, in.v, slots, there, in.kv_heads * in.head_dim);
    forward_fp32(work, in, segments_of(pieces, false), out, work.scratch<float>(in.heads * in.q_rows));
}

}  // namespace

void paged_attention_prefill(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                             const std::vector<PagedSegment>& segments, float scale, Tensor out) {
    Work work(stream, "paged_attention_prefill");
    const AttentionInputs in = attention_inputs(q, k_cache, v_cache, scale);
    const std::int64_t page_size = k_cache.dim(1);
    const ForwardOut to{elements(out, in.head_dim), false, {}};
    require(k_cache.dim(0) * page_size < kDividends,
            "paged_attention_prefill: a cache of {} positions on a GPU; it must have fewer than {} there",
            k_cache.dim(0) * page_size, kDividends);
    const std::vector<AttentionSegment> in_pages = segments_of(segments, true);
    if (!by_tensor_cores(in, in_pages, to)) return prefill_fp32(work, in, segments, page_size, to);
    std::vector<std::int32_t> pages;
    for (const PagedSegment& segment : segments)
        pages.insert(pages.end(), segment.pages.begin(), segment.pages.end());
    const std::int32_t* const table = work.table(pages);
    if (on_hopper(stream)) {
        forward_mma<PagedKeys, true>(work, in, in_pages, to, nullptr, table, shared::divider(page_size));
    } else {
        forward_mma<PagedKeys>(work, in, in_pages, to, nullptr, table, shared::divider(page_size));
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
