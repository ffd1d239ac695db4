#include "engine_adapter/embedded/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "common/device/devices.h"
#include "common/error.h"
#include "common/ops/batched_copy.h"

namespace tandem::engine {

PagePool::PagePool(std::int32_t pages) : owners_(static_cast<std::size_t>(pages), 0) {
    for (std::int32_t page = pages - 1; page >= 0; --page)
        free_.push_back(page);  // page 0 is handed out first
}

std::int32_t PagePool::allocate() {
    require(!free_.empty(), "all {} pages of the KV cache are taken", total());
    const std::int32_t page = free_.back();
    free_.pop_back();
    owners_[static_cast<std::size_t>(page)] = 1;
    return page;
}

void PagePool::share(std::int32_t page) {
    require(owners_.at(static_cast<std::size_t>(page)) > 0, "page {} is shared but has no owner", page);
    ++owners_[static_cast<std::size_t>(page)];
}

void PagePool::release(std::int32_t page) {
    require(owners_.at(static_cast<std::size_t>(page)) > 0, "page {} is released but has no owner", page);
    if (--owners_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
}

KvCache::KvCache(const model::ModelConfig& config, DType dtype, std::int64_t tokens, std::int64_t page_size,
                 Device device)
    : page_size_(page_size),
      pool_(static_cast<std::int32_t>((tokens + page_size - 1) / page_size)),
      memory_(PagedTensor::going_if_possible({2 * config.num_hidden_layers, pool_.total(), page_size,
                                              config.num_key_value_heads, config.head_dim},
                                             dtype, "engine.kv", device)) {
    const Shape of_layer{pool_.total(), page_size, config.num_key_value_heads, config.head_dim};
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        k_.push_back(memory_.tensor().rows(2 * layer, 1).reshape(of_layer));
        v_.push_back(memory_.tensor().rows(2 * layer + 1, 1).reshape(of_layer));
    }
}

std::size_t KvCache::bytes_per_token(const model::ModelConfig& config, DType dtype) {
    const std::int64_t values = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
    return static_cast<std::size_t>(values) * dtype_size(dtype);
}

void KvCache::write(Stream& stream, std::size_t layer, const Tensor& k, const Tensor& v,
                    const std::vector<Rows>& rows) {
    const std::size_t row_bytes = k.bytes() / static_cast<std::size_t>(k.dim(0));
    const bool here = stream.is_inline();
    std::vector<ops::CopyItem> items;  // one launch for all runs, on a GPU
    const auto put = [&](const Tensor& from, std::size_t from_byte, const Tensor& to, std::size_t to_byte,
                         std::size_t bytes) {
        if (here) {
            std::memcpy(to.raw() + to_byte, from.raw() + from_byte, bytes);
            return;
        }
        ops::CopyItem& item = items.emplace_back();
        item.from = ConstSpan(from.raw() + from_byte, bytes);
        item.to = {to.raw() + to_byte, bytes};
        item.non_temporal = false;
    };
    for (Rows run : rows) {
        while (run.count > 0) {
            const std::int64_t in_page = run.begin % page_size_;
            const std::int64_t count = std::min(run.count, page_size_ - in_page);
            const std::int64_t page = run.pages->at(static_cast<std::size_t>(run.begin / page_size_));
            const std::size_t to = static_cast<std::size_t>(page * page_size_ + in_page) * row_bytes;
            const std::size_t from = static_cast<std::size_t>(run.row) * row_bytes;
            put(k, from, k_[layer], to, static_cast<std::size_t>(count) * row_bytes);
            put(v, from, v_[layer], to, static_cast<std::size_t>(count) * row_bytes);
            run.begin += count;
            run.row += count;
            run.count -= count;
        }
    }
    if (!items.empty()) ops::batched_copy(stream, items);
}

void KvCache::copy_page(Stream& stream, std::int32_t from, std::int32_t to) {
    for (std::size_t layer = 0; layer < k_.size(); ++layer) {
        for (const Tensor* cache : {&k_[layer], &v_[layer]})
            copy(stream, cache->rows(from, 1), cache->rows(to, 1));
    }
}

}  // namespace tandem::engine
