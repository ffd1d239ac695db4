// The paged KV cache: per layer one block of pages for k and one for v, and a pool that hands out page
// numbers (the same number means the same page in every layer). Full pages of a prompt may be shared by
// several samples.
#pragma once

#include <cstdint>
#include <vector>

#include "common/device/stream.h"
#include "common/model/model_config.h"
#include "common/tensor/paged_tensor.h"

namespace tandem::engine {

// Counts owners of pages. Not thread-safe: the scheduler's thread owns it.
class PagePool {
  public:
    explicit PagePool(std::int32_t pages);
    std::int32_t total() const { return static_cast<std::int32_t>(owners_.size()); }
    std::int32_t free() const { return static_cast<std::int32_t>(free_.size()); }
    std::int32_t allocate();          // one owner; throws InvalidArgument when none is free
    void share(std::int32_t page);    // one more owner
    void release(std::int32_t page);  // one owner less; the last one frees it

  private:
    std::vector<std::int32_t> free_;
    std::vector<std::int32_t> owners_;
};

class KvCache {
  public:
    // Rows [row, row + count) of a pass go to positions [begin, begin + count) of the sequence whose pages
    // are given, which must live until write() returns.
    struct Rows {
        const std::vector<std::int32_t>* pages;
        std::int64_t begin = 0;
        std::int64_t row = 0;
        std::int64_t count = 0;
    };

    KvCache(const model::ModelConfig& config, DType dtype, std::int64_t tokens, std::int64_t page_size,
            Device device = {});

    PagePool& pool() { return pool_; }
    std::int64_t page_size() const { return page_size_; }
    std::int64_t pages_for(std::int64_t tokens) const { return (tokens + page_size_ - 1) / page_size_; }
    const Tensor& k(std::size_t layer) const { return k_[layer]; }  // [pages, page_size, kv_heads, head_dim]
    const Tensor& v(std::size_t layer) const { return v_[layer]; }

    // Writes rows of k and v [tokens, kv_heads, head_dim] to their pages, in the stream's order.
    void write(Stream& stream, std::size_t layer, const Tensor& k, const Tensor& v,
               const std::vector<Rows>& rows);
    void copy_page(Stream& stream, std::int32_t from, std::int32_t to);  // in every layer

    // Release its pages to the system, and restore them at the same addresses: what they held is lost. No
    // pass may run while they are released.
    void release() { memory_.release(); }
    void restore() { memory_.restore(); }
    bool released() const { return !memory_.has_pages(); }

    static std::size_t bytes_per_token(const model::ModelConfig& config, DType dtype);

  private:
    std::int64_t page_size_;
    PagePool pool_;
    PagedTensor memory_;  // of all layers
    std::vector<Tensor> k_, v_;
};

}  // namespace tandem::engine
