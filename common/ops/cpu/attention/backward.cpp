// The backward of attention on the CPU.
#include <algorithm>

#include "common/ops/attention.h"
#include "common/ops/cpu/attention/backward.h"
#include "common/ops/cpu/instruction_sets.h"
#include "common/ops/cpu/parallel.h"

namespace tandem::ops::cpu {
namespace {

using detail::AttentionShape;
using Backward = detail::BackwardOperands;
using detail::kKeyTile;
using detail::kQueryTile;
using detail::Scratch;

void clear(const Tensor& tensor) {
    float* const data = tensor.data<float>();
    detail::parallel_blocks(tensor.numel(), 1 << 16, [&](std::int64_t begin, std::int64_t count) {
        std::fill_n(data + begin, count, 0.0f);
    });
}

// Adds packed rows [rows, width] to rows of one head of a float32 tensor.
void add_rows(const float* from, const AttentionShape& s, std::int64_t rows, const Tensor& to,
              std::int64_t begin, std::int64_t head, std::int64_t heads) {
    for (std::int64_t row = 0; row < rows; ++row) {
        float* target = to.data<float>() + ((begin + row) * heads + head) * s.head_dim;
        for (std::int64_t d = 0; d < s.head_dim; ++d) target[d] += from[row * s.width + d];
    }
}

// One query head of a segment against all its keys. dk and dv [padded keys, width] take the sums over the
// group's heads.
void backward_head(const Backward& b, const AttentionSegment& segment, std::int64_t head,
                   const detail::PackedKeys& keys, float* dk, float* dv) {
    const AttentionShape& s = b.shape;
    const detail::AttentionKernels& kernels = detail::attention_kernels();
    thread_local Scratch scratch;
    float* q = scratch.floats(kQueryTile * (3 * s.width + 2 * kKeyTile));
    float* dout = q + kQueryTile * s.width;
    float* dq = dout + kQueryTile * s.width;
    float* scores = dq + kQueryTile * s.width;
    for (std::int64_t first = 0; first < segment.q_len; first += kQueryTile) {
        const std::int64_t rows = std::min(kQueryTile, segment.q_len - first);
        const std::int64_t begin = segment.q_begin + first;
        const std::int64_t seen = segment.causal ? first + segment.k_len - segment.q_len + 1 : segment.k_len;
        const std::int64_t step = segment.causal ? 1 : 0;
        const std::int64_t last = std::min(segment.k_len, seen + step * (rows - 1));
        if (last <= 0) continue;
        detail::pack_rows(b.q, begin, rows, head, s.heads, s, 1.0f, q);
        detail::pack_rows(b.dout, begin, rows, head, s.heads, s, 1.0f, dout);
        std::fill_n(dq, rows * s.width, 0.0f);
        for (std::int64_t key = 0; key < last; key += kKeyTile) {
            kernels.backward_tile({.q = q,
                                   .dout = dout,
                                   .k = keys.k(key),
                                   .k_t = keys.k_t(key),
                                   .v_t = keys.v_t(key),
                                   .lse = b.lse.data<float>() + head * s.q_rows + begin,
                                   .delta = b.delta.data<float>() + head * s.q_rows + begin,
                                   .dq = dq,
                                   .dk = dk + key * s.width,
                                   .dv = dv + key * s.width,
                                   .scores = scores,
                                   .dscores = scores + kQueryTile * kKeyTile,
                                   .rows = rows,
                                   .head_dim = s.head_dim,
                                   .width = s.width,
                                   .visible = std::min(seen, segment.k_len) - key,
                                   .visible_step = step,
                                   .keys = std::min(kKeyTile, segment.k_len - key),
                                   .scale = b.scale});
        }
        add_rows(dq, s, rows, b.dq, begin, head, s.heads);
    }
}

// All segments of one kv head, in order: they may share k rows, and their sums into dk and dv must not race.
void backward_kv_head(const Backward& b, const std::vector<AttentionSegment>& segments,
                      std::int64_t kv_head) {
    const AttentionShape& s = b.shape;
    thread_local Scratch key_scratch;
    thread_local Scratch sum_scratch;
    for (const AttentionSegment& segment : segments) {
        if (segment.q_len == 0 || segment.k_len == 0) continue;
        const detail::PackedKeys keys(b.k, b.v, segment.k_begin, segment.k_len, kv_head, s, key_scratch,
                                      true);
        const std::int64_t padded = (segment.k_len + kKeyTile - 1) / kKeyTile * kKeyTile;
        float* dk = sum_scratch.floats(2 * padded * s.width);
        float* dv = dk + padded * s.width;
        std::fill_n(dk, 2 * padded * s.width, 0.0f);
        for (std::int64_t g = 0; g < s.group; ++g)
            backward_head(b, segment, kv_head * s.group + g, keys, dk, dv);
        add_rows(dk, s, segment.k_len, b.dk, segment.k_begin, kv_head, s.kv_heads);
        add_rows(dv, s, segment.k_len, b.dv, segment.k_begin, kv_head, s.kv_heads);
    }
}

bool by_pairs(const Backward& b) {
    for (const Tensor& tensor : {b.dout, b.q, b.k, b.v}) {
        if (tensor.dtype() != DType::bfloat16) return false;
    }
    return detail::runs_avx512_bf16();
}

}  // namespace

void attention_backward(Stream& stream, const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& lse, const Tensor& delta, const std::vector<AttentionSegment>& segments,
                        float scale, Tensor dq, Tensor dk, Tensor dv, GradientWrites writes) {
    const AttentionShape shape = detail::attention_shape(q, k);
    stream.enqueue([b = Backward{dout, q, k, v, lse, delta, shape, scale, dq, dk, dv}, segments, writes] {
        if (writes.dq) clear(b.dq);
        if (writes.dk_dv) {
            clear(b.dk);
            clear(b.dv);
        }
        const bool pairs = by_pairs(b);
        const detail::BackwardPairsKernels& kernels =
            detail::runs_amx() ? detail::kBackwardAmx : detail::kBackwardPairsBf16;
        detail::parallel_for(b.shape.kv_heads, [&](std::int64_t kv_head) {
            if (pairs) {
                detail::backward_pairs_kv_head(kernels, b, segments, kv_head);
            } else {
                backward_kv_head(b, segments, kv_head);
            }
        });
    });
}

}  // namespace tandem::ops::cpu
