// Tiled ("flash") attention over packed rows: no [q, k] matrix is ever stored. GQA, causal or not, forward
// and backward, with the log-sum-exp out, so that blocks computed apart can be merged (ring attention).
#pragma once

#include <cstdint>
#include <vector>

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/ops/rope.h"
#include "common/tensor/tensor.h"

namespace tandem::ops {

// A rectangle of attention: rows [q_begin, q_begin + q_len) of q look at rows [k_begin, k_begin + k_len) of k
// and v. Causal is aligned bottom-right: query i sees key j iff j <= i + (k_len - q_len). A query that sees
// no key gets out = 0 and lse = -inf. Segments of one call must not share q rows; they may share k rows.
struct AttentionSegment {
    std::int64_t q_begin = 0;
    std::int64_t q_len = 0;
    std::int64_t k_begin = 0;
    std::int64_t k_len = 0;
    bool causal = true;
};

// Self-attention of packed sequences: cu_seqlens = [0, l0, l0 + l1, …].
std::vector<AttentionSegment> packed_segments(const std::vector<std::int32_t>& cu_seqlens,
                                              bool causal = true);

// What attention_forward does with its results. Both need a float32 out.
struct ForwardWrites {
    // out and lse hold the results of the same queries over other keys: those over this call's keys are merged
    // into them, weighted by log-sum-exp. Rows that see no key, or are in no segment, stay as they are.
    bool merge = false;
    // bfloat16, shaped as out, or none: gets what out holds then, rounded; of rows in segments alone when merging.
    Tensor rounded = {};
};

// q [q_rows, heads, head_dim], k and v [k_rows, kv_heads, head_dim], float32 or bfloat16; heads is a multiple
// of kv_heads. out like q (or float32: then nothing is rounded), lse [heads, q_rows] float32, natural log. Rows
// of q in no segment get out = 0, lse = -inf. The values of a row do not depend on what else is in the call.
// Of bfloat16, probabilities are rounded to bfloat16 on a GPU, and on a CPU with AVX512-BF16; their sums are float32.
void attention_forward(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v,
                       const std::vector<AttentionSegment>& segments, float scale, Tensor out, Tensor lse,
                       ForwardWrites writes = {});

// delta[heads, q_rows] = rowsum(dout * out), float32: the term that the backward of every block shares.
void attention_delta(Stream& stream, const Tensor& dout, const Tensor& out, Tensor delta);

// The gradients that attention_backward writes instead of adding to them: what they held does not matter, and
// rows in no segment become 0.
struct GradientWrites {
    bool dq = false;
    bool dk_dv = false;
};

// Given the final lse and delta, adds this call's contribution to dq, dk, dv (float32, shaped as q, k, v). Sums
// are float32; on a GPU, and on a CPU with AVX512-BF16, the probabilities and their gradients are rounded to
// bfloat16 where all of dout, q, k and v are bfloat16.
void attention_backward(Stream& stream, const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& lse, const Tensor& delta, const std::vector<AttentionSegment>& segments,
                        float scale, Tensor dq, Tensor dk, Tensor dv, GradientWrites writes = {});

// Attention of one new token of each sequence over a paged KV cache. q [batch, heads, head_dim];
// k_cache, v_cache [pages, page_size, kv_heads, head_dim]; block_tables[b] lists the pages of sequence b; its
// first lengths[b] positions are valid (the new token's k and v already written). The values are those of
// attention_forward, bit for bit: on the CPU, and on a GPU for bfloat16 where its tensor cores do both (head_dim
// a multiple of 8, scale above 0).
void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const std::vector<std::vector<std::int32_t>>& block_tables,
                            const std::vector<std::int32_t>& lengths, float scale, Tensor out);

// A decode step's new tokens to their attention, a sequence after the other: q and k [batch, kv_heads, head_dim] are
// rotated in place to position lengths[b] - 1, k and v written there in the caches, and then out is as above. Every
// bit is that of rope, the writes and paged_attention_decode as ops of their own. Lengths are at least 1, and no
// position that is written belongs to two sequences. On the CPU only.
void rotate_and_decode(Stream& stream, Tensor q, Tensor k, const Tensor& v, Tensor k_cache, Tensor v_cache,
                       const std::vector<std::vector<std::int32_t>>& block_tables,
                       const std::vector<std::int32_t>& lengths, const RopeTable& table, float scale,
                       Tensor out);

// Rows [q_begin, q_begin + q_len) of q are the last of a sequence's first k_len positions, whose keys and
// values, their own included, lie in `pages`.
struct PagedSegment {
    std::int64_t q_begin = 0;
    std::int64_t q_len = 0;
    std::int64_t k_len = 0;
    std::vector<std::int32_t> pages;
};

// Causal attention of pieces of sequences over a paged KV cache, as above; each row sees itself and what lies
// before it. The values of a row are those of attention_forward over the whole sequence, bit for bit, however
// it was cut. Rows of q in no segment stay as they are in out; segments must not share rows of q.
void paged_attention_prefill(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                             const std::vector<PagedSegment>& segments, float scale, Tensor out);

// paged_attention_decode with the tables in tensors (int32) on the stream's device, read when the stream gets
// there, as a recorded graph needs it: pages [batch, width], lengths [batch], at most width pages long.
// Length 0: no sequence, whose out is 0. A GPU does not check them.
void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const Tensor& pages, const Tensor& lengths, float scale, Tensor out);
// Puts row b of k and v [batch, kv_heads, head_dim] at position lengths[b] - 1 of sequence b in the caches;
// nowhere for length 0. Tables as above.
void write_pages(Stream& stream, const Tensor& k, const Tensor& v, const Tensor& pages, const Tensor& lengths,
                 Tensor k_cache, Tensor v_cache);

TANDEM_BACKENDS(attention_forward)
TANDEM_BACKENDS(attention_delta)
TANDEM_BACKENDS(attention_backward)
TANDEM_BACKENDS(paged_attention_decode, const Tensor&, const Tensor&, const Tensor&,
                const std::vector<std::vector<std::int32_t>>&)
TANDEM_BACKENDS(paged_attention_decode, const Tensor&, const Tensor&, const Tensor&, const Tensor&)
namespace cpu {
decltype(ops::rotate_and_decode) rotate_and_decode;
}
TANDEM_BACKENDS(paged_attention_prefill)
TANDEM_BACKENDS(write_pages)

}  // namespace tandem::ops
