#include "engine_adapter/embedded/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"

namespace tandem::engine {

PagePool::PagePool(std::int32_t pages) : owners_(static_cast<std::size_t>(pages), 0) {
    for (std::int32_t page = pages - 1; page >= 0; --page)
        free_.push_back(page);  // page 0 is handed out first
}

std::int32_t PagePool::take() {
    require(!free_.empty(), "all {} pages of the KV cache are taken", total());
    const std::int32_t page = free_.back();
    free_.pop_back();
    owners_[static_cast<std::size_t>(page)] = 1;
    return page;
}

void PagePool::share(std::int32_t page) {
    require(owners_.at(static_cast<std::size_t>(page)) > 0, "page {} is shared while nobody owns it", page);
    ++owners_[static_cast<std::size_t>(page)];
}

void PagePool::release(std::int32_t page) {
    require(owners_.at(static_cast<std::size_t>(page)) > 0, "page {} is released while nobody owns it", page);
    if (--owners_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
}

KvCache::KvCache(const model::ModelConfig& config, DType dtype, std::int64_t tokens, std::int64_t page_size)
    : page_size_(page_size), pool_(static_cast<std::int32_t>((tokens + page_size - 1) / page_size)) {
    const Shape shape = {pool_.total(), page_size, config.num_key_value_heads, config.head_dim};
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        k_.push_back(Tensor::empty(shape, dtype, "engine.kv"));
        v_.push_back(Tensor::empty(shape, dtype, "engine.kv"));
    }
}

std::size_t KvCache::bytes_per_token(const model::ModelConfig& config, DType dtype) {
    const std::int64_t values = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
    return static_cast<std::size_t>(values) * dtype_size(dtype);
}

void KvCache::write(std::size_t layer, const std::vector<std::int32_t>& pages, std::int64_t begin,
                    const Tensor& k, const Tensor& v, std::int64_t row, std::int64_t count) {
    const std::size_t row_bytes = k.bytes() / static_cast<std::size_t>(k.dim(0));
    while (count > 0) {
        const std::int64_t in_page = begin % page_size_;
        const std::int64_t run = std::min(count, page_size_ - in_page);
        const std::int64_t page = pages.at(static_cast<std::size_t>(begin / page_size_));
        const std::size_t to = static_cast<std::size_t>(page * page_size_ + in_page) * row_bytes;
        const std::size_t from = static_cast<std::size_t>(row) * row_bytes;
        std::memcpy(k_[layer].raw() + to, k.raw() + from, static_cast<std::size_t>(run) * row_bytes);
        std::memcpy(v_[layer].raw() + to, v.raw() + from, static_cast<std::size_t>(run) * row_bytes);
        begin += run;
        row += run;
        count -= run;
    }
}

void KvCache::copy_page(std::int32_t from, std::int32_t to) {
    for (std::size_t layer = 0; layer < k_.size(); ++layer) {
        for (Tensor* cache : {&k_[layer], &v_[layer]}) {
            const Tensor source = cache->rows(from, 1);
            std::memcpy(cache->rows(to, 1).raw(), source.raw(), source.bytes());
        }
    }
}

}  // namespace tandem::engine
