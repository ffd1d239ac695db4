// The backward of attention by products of pairs of bfloat16: packing and the walk over tiles. The arithmetic is in
// backward_pairs.inl.
#include "common/ops/cpu/attention/backward_pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "common/ops/cpu/attention/backward.h"

namespace tandem::ops::detail {
namespace {

constexpr float kSeesNothing = -std::numeric_limits<float>::infinity();  // lse

struct PairsShape {
    explicit PairsShape(const AttentionShape& s) : words((s.head_dim + 31) / 32 * 16), width(s.width) {}
    std::int64_t words, width;
};

// Consecutive parts of a thread's memory, each a multiple of 64 bytes.
class Parts {
  public:
    Parts(Scratch& scratch, std::int64_t words) : at_(scratch.floats(words)) {}
    float* floats(std::int64_t count) {
        at_ += count;
        return at_ - count;
    }
    std::uint32_t* words(std::int64_t count) { return reinterpret_cast<std::uint32_t*>(floats(count)); }

  private:
    float* at_;
};

// Rows [begin, begin + rows) of `head`.
PairRows rows_of(const Tensor& tensor, std::int64_t begin, std::int64_t rows, std::int64_t head) {
    const std::int64_t heads = tensor.dim(1), head_dim = tensor.dim(2);
    const auto* from = reinterpret_cast<const std::uint16_t*>(tensor.raw());
    return {from + (begin * heads + head) * head_dim, heads * head_dim, rows, head_dim};
}

// The keys of one kv head of a segment, and their gradients: sums over the group's heads.
struct PairKeys {
    PairKeys(const BackwardPairsKernels& kernels, const BackwardOperands& b, const AttentionSegment& segment,
             std::int64_t kv_head) {
        const PairsShape s(b.shape);
        const std::int64_t padded = (segment.k_len + kKeyTile - 1) / kKeyTile * kKeyTile;
        thread_local Scratch scratch;
        Parts parts(scratch, padded * (2 * s.words + s.width / 2 + 2 * s.width));
        k = parts.words(padded * s.words);
        v = parts.words(padded * s.words);
        k_pairs = parts.words(padded / 2 * s.width);
        dk = parts.floats(padded * s.width);
        dv = parts.floats(padded * s.width);
        const PairRows k_rows = rows_of(b.k, segment.k_begin, segment.k_len, kv_head);
        kernels.pack_rows(k_rows, s.words, k);
        kernels.pack_pairs(k_rows, s.width, k_pairs);
        kernels.pack_rows(rows_of(b.v, segment.k_begin, segment.k_len, kv_head), s.words, v);
        std::fill_n(dk, segment.k_len * s.width, 0.0f);
        std::fill_n(dv, segment.k_len * s.width, 0.0f);
    }
    std::uint32_t *k, *v, *k_pairs;
    float *dk, *dv;
};

// A query tile of one head, and the scratch of its tiles.
struct PairQueries {
    explicit PairQueries(const PairsShape& s) {
        thread_local Scratch scratch;
        Parts parts(scratch,
                    kPairQueries * (2 * s.words + 2 * s.width + 2) + 3 * kKeyTile * kPairQueries / 2);
        q_t = parts.words(kPairQueries * s.words);
        dout_t = parts.words(kPairQueries * s.words);
        q_pairs = parts.words(kPairQueries / 2 * s.width);
        dout_pairs = parts.words(kPairQueries / 2 * s.width);
        dq = parts.floats(kPairQueries * s.width);
        shift = parts.floats(kPairQueries);
        delta = parts.floats(kPairQueries);
        p = parts.words(kKeyTile * kPairQueries / 2);
        ds = parts.words(kKeyTile * kPairQueries / 2);
        ds_pairs = parts.words(kKeyTile * kPairQueries / 2);
    }

    void load(const BackwardPairsKernels& kernels, const BackwardOperands& b, std::int64_t begin,
              std::int64_t rows, std::int64_t head) const {
        const PairsShape s(b.shape);
        const PairRows q_rows = rows_of(b.q, begin, rows, head);
        const PairRows dout_rows = rows_of(b.dout, begin, rows, head);
        kernels.pack_turned(q_rows, s.words, q_t);
        kernels.pack_turned(dout_rows, s.words, dout_t);
        kernels.pack_pairs(q_rows, s.width, q_pairs);
        kernels.pack_pairs(dout_rows, s.width, dout_pairs);
        const std::int64_t row = head * b.shape.q_rows + begin;
        const float* const lse = b.lse.data<float>() + row;
        for (std::int64_t i = 0; i < rows; ++i)
            shift[i] = lse[i] == kSeesNothing ? kSeesNothing : lse[i] * -std::numbers::log2e_v<float>;
        std::copy_n(b.delta.data<float>() + row, rows, delta);
        std::fill_n(shift + rows, kPairQueries - rows, 0.0f);
        std::fill_n(delta + rows, kPairQueries - rows, 0.0f);
        std::fill_n(dq, rows * s.width, 0.0f);
    }

    std::uint32_t *q_t, *dout_t, *q_pairs, *dout_pairs;
    float *dq, *shift, *delta;
    std::uint32_t *p, *ds, *ds_pairs;
};

// Adds packed rows [rows, width], times factor, to rows of one head of a float32 tensor.
void add_to(const BackwardPairsKernels& kernels, const float* from, const AttentionShape& s, float factor,
            const Tensor& to, std::int64_t begin, std::int64_t rows, std::int64_t head) {
    const std::int64_t heads = to.dim(1);
    kernels.add_rows(from, s.width, rows, s.head_dim, factor,
                     to.data<float>() + (begin * heads + head) * s.head_dim, heads * s.head_dim);
}

// One query head of a segment against all its keys.
void backward_pairs_head(const BackwardPairsKernels& kernels, const BackwardOperands& b,
                         const AttentionSegment& segment, std::int64_t head, const PairKeys& keys) {
    const PairsShape s(b.shape);
    const PairQueries tile(s);
    for (std::int64_t first = 0; first < segment.q_len; first += kPairQueries) {
        const std::int64_t rows = std::min(kPairQueries, segment.q_len - first);
        const std::int64_t seen = segment.causal ? first + segment.k_len - segment.q_len + 1 : segment.k_len;
        const std::int64_t step = segment.causal ? 1 : 0;
        const std::int64_t last = std::min(segment.k_len, seen + step * (rows - 1));
        if (last <= 0) continue;
        tile.load(kernels, b, segment.q_begin + first, rows, head);
        for (std::int64_t key = 0; key < last; key += kKeyTile) {
            kernels.tile({.q_t = tile.q_t,
                          .dout_t = tile.dout_t,
                          .q_pairs = tile.q_pairs,
                          .dout_pairs = tile.dout_pairs,
                          .k = keys.k + key * s.words,
                          .v = keys.v + key * s.words,
                          .k_pairs = keys.k_pairs + key / 2 * s.width,
                          .shift = tile.shift,
                          .delta = tile.delta,
                          .dq = tile.dq,
                          .dk = keys.dk + key * s.width,
                          .dv = keys.dv + key * s.width,
                          .p = tile.p,
                          .ds = tile.ds,
                          .ds_pairs = tile.ds_pairs,
                          .rows = rows,
                          .head_dim = b.shape.head_dim,
                          .width = s.width,
                          .words = s.words,
                          .visible = seen - key,
                          .visible_step = step,
                          .scale = b.scale * std::numbers::log2e_v<float>});
        }
        add_to(kernels, tile.dq, b.shape, b.scale, b.dq, segment.q_begin + first, rows, head);
    }
}

}  // namespace

void backward_pairs_kv_head(const BackwardPairsKernels& kernels, const BackwardOperands& b,
                            const std::vector<AttentionSegment>& segments, std::int64_t kv_head) {
    const UnitInUse in_use(kernels.use);
    for (const AttentionSegment& segment : segments) {
        if (segment.q_len == 0 || segment.k_len == 0) continue;
        const PairKeys keys(kernels, b, segment, kv_head);
        for (std::int64_t g = 0; g < b.shape.group; ++g)
            backward_pairs_head(kernels, b, segment, kv_head * b.shape.group + g, keys);
        add_to(kernels, keys.dk, b.shape, b.scale, b.dk, segment.k_begin, segment.k_len, kv_head);
        add_to(kernels, keys.dv, b.shape, 1.0f, b.dv, segment.k_begin, segment.k_len, kv_head);
    }
}

}  // namespace tandem::ops::detail
