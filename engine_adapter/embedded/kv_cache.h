// The paged KV cache: per layer one block of pages for k and one for v, and a pool that hands out page
// numbers (the same number means the same page in every layer). Full pages of a prompt may be shared by
// several samples.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/model_config.h"
#include "common/tensor/tensor.h"

namespace tandem::engine {

// Counts owners of pages. Not thread-safe: the scheduler's thread owns it.
class PagePool {
  public:
    explicit PagePool(std::int32_t pages);
    std::int32_t total() const { return static_cast<std::int32_t>(owners_.size()); }
    std::int32_t free() const { return static_cast<std::int32_t>(free_.size()); }
    std::int32_t take();              // one owner; throws InvalidArgument when none is free
    void share(std::int32_t page);    // one more owner
    void release(std::int32_t page);  // one owner less; the last one frees it

  private:
    std::vector<std::int32_t> free_;
    std::vector<std::int32_t> owners_;
};

class KvCache {
  public:
    KvCache(const model::ModelConfig& config, DType dtype, std::int64_t tokens, std::int64_t page_size);

    PagePool& pool() { return pool_; }
    std::int64_t page_size() const { return page_size_; }
    std::int64_t pages_for(std::int64_t tokens) const { return (tokens + page_size_ - 1) / page_size_; }
    const Tensor& k(std::size_t layer) const { return k_[layer]; }  // [pages, page_size, kv_heads, head_dim]
    const Tensor& v(std::size_t layer) const { return v_[layer]; }

    // Puts rows [row, row + count) of k and v [tokens, kv_heads, head_dim] at positions [begin, begin +
    // count) of the sequence whose pages are given.
    void write(std::size_t layer, const std::vector<std::int32_t>& pages, std::int64_t begin, const Tensor& k,
               const Tensor& v, std::int64_t row, std::int64_t count);
    void copy_page(std::int32_t from, std::int32_t to);  // in every layer

    static std::size_t bytes_per_token(const model::ModelConfig& config, DType dtype);

  private:
    std::int64_t page_size_;
    PagePool pool_;
    std::vector<Tensor> k_, v_;
};

}  // namespace tandem::engine
