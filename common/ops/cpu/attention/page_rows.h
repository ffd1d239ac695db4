// The keys of a tile in a sequence's pages, for kernels that read them there.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ops/cpu/attention/pack.h"

namespace tandem::ops::detail {

// Keys are read where they lie if each kKeyRows lie in one page; else they are copied together, in this thread's
// page_scratch().
class PageRows {
  public:
    explicit PageRows(const AttentionShape& shape) : shape_(shape) {}
    // Where all kv heads of the keys are loaded then: each asks for a part of the tile that comes next.
    void read(const Tensor& k_cache, const Tensor& v_cache, const PagesInTurn& pages, std::int64_t key,
              std::int64_t count);
    KeyRows load(const Tensor& k_cache, const Tensor& v_cache, const std::vector<std::int32_t>& pages,
                 std::int64_t key, std::int64_t count, std::int64_t kv_head) const;

  private:
    KeyRows copied(const Tensor& k_cache, const Tensor& v_cache, const std::vector<std::int32_t>& pages,
                   std::int64_t key, std::int64_t count, std::int64_t kv_head) const;

    AttentionShape shape_;
    bool looks_ahead_ = false;
    const std::byte *next_k_[kKeyVectors], *next_v_[kKeyVectors];  // all kv heads of kKeyRows keys each
};

}  // namespace tandem::ops::detail
