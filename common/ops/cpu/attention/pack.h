// Attention's operands, packed for the kernels: one kv head at a time, fp32, contiguous, padded.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ops/attention.h"
#include "common/ops/cpu/attention/kernels.h"

namespace tandem::ops::detail {

// The fastest kernels that this machine runs.
const AttentionKernels& attention_kernels();

struct AttentionShape {
    std::int64_t q_rows = 0, heads = 0, kv_heads = 0, group = 0, head_dim = 0;
    std::int64_t width = 0;  // head_dim rounded up to a multiple of 16
};

// k: [..., kv_heads, head_dim], keys or a cache of them.
AttentionShape attention_shape(const Tensor& q, const Tensor& k);

// Memory that a thread keeps between calls, 64-byte aligned.
class Scratch {
  public:
    float* floats(std::int64_t count);  // contents undefined; valid until the next call

  private:
    std::vector<float> memory_;
};

// Of this thread: for the keys of a segment, and for those of a tile in pages.
Scratch& segment_scratch();
Scratch& page_scratch();

// to[r] = row begin + r of `head`, times factor, zero-padded to `width`.
void pack_rows(const Tensor& tensor, std::int64_t begin, std::int64_t rows, std::int64_t head,
               std::int64_t heads, const AttentionShape& shape, float factor, float* to);

// Elements from the start of a cache to the row of kv head `kv_head` of each of positions [key, key + count), which
// lie in `pages`; the rows of the page after each are prefetched from these caches.
void find_page_rows(const Tensor& k_cache, const Tensor& v_cache, const std::vector<std::int32_t>& pages,
                    std::int64_t key, std::int64_t count, std::int64_t kv_head, const AttentionShape& shape,
                    std::int64_t* offsets);

// The pages of a sequence, and behind them those of the one that the thread probably reads next.
struct PagesInTurn {
    const std::vector<std::int32_t>& own;
    std::int64_t used;                      // of own
    const std::vector<std::int32_t>* next;  // null: not known
    // Negative behind them all.
    std::int64_t at(std::int64_t index) const {
        if (index < used) return own[static_cast<std::size_t>(index)];
        const auto further = static_cast<std::size_t>(index - used);
        return next != nullptr && further < next->size() ? (*next)[further] : -1;
    }
};

// Reads keys [key, key + count) of all kv heads, and their values, into the caches: in the order in which they lie,
// which memory delivers fastest; and asks for those that follow.
void read_pages(const Tensor& k_cache, const Tensor& v_cache, const PagesInTurn& pages, std::int64_t key,
                std::int64_t count);

// The keys and values of one kv head of a segment, cut into key tiles.
class PackedKeys {
  public:
    // For the backward also k as rows and v transposed.
    PackedKeys(const Tensor& k, const Tensor& v, std::int64_t begin, std::int64_t count, std::int64_t kv_head,
               const AttentionShape& shape, Scratch& scratch, bool backward = false);
    // The tile whose first key is `key`, a multiple of kKeyTile.
    const float* v(std::int64_t key) const { return v_ + key * shape_.width; }
    const float* k(std::int64_t key) const { return k_ + key * shape_.width; }
    const float* k_t(std::int64_t key) const { return k_t_ + key * shape_.head_dim; }
    const float* v_t(std::int64_t key) const { return v_t_ + key * shape_.head_dim; }

  private:
    AttentionShape shape_;
    float* k_ = nullptr;
    float* v_ = nullptr;
    float* k_t_ = nullptr;
    float* v_t_ = nullptr;
};

// One key tile gathered from the pages of a sequence.
class PackedPage {
  public:
    PackedPage(const AttentionShape& shape, Scratch& scratch);
    void load(const Tensor& k_cache, const Tensor& v_cache, const std::vector<std::int32_t>& pages,
              std::int64_t key, std::int64_t count, std::int64_t kv_head);
    const float* v() const { return v_; }
    const float* k_t() const { return k_t_; }

  private:
    AttentionShape shape_;
    float* k_;
    float* v_;
    float* k_t_;
};

}  // namespace tandem::ops::detail
