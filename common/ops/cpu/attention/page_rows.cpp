#include "common/ops/cpu/attention/page_rows.h"

#include <algorithm>
#include <cstring>

namespace tandem::ops::detail {
namespace {

std::int64_t bytes_of(const Tensor& cache, std::int64_t elements) {
    return elements * static_cast<std::int64_t>(dtype_size(cache.dtype()));
}

}  // namespace

void PageRows::read(const Tensor& k_cache, const Tensor& v_cache, const PagesInTurn& pages, std::int64_t key,
                    std::int64_t count) {
    read_pages(k_cache, v_cache, pages, key, count);
    const std::int64_t page_size = k_cache.dim(1);
    looks_ahead_ = page_size % kKeyRows == 0;
    if (!looks_ahead_) return;
    const std::int64_t row_bytes = bytes_of(k_cache, shape_.kv_heads * shape_.head_dim);
    const std::int64_t end = pages.used * page_size;
    const std::int64_t next = count < kKeyTile ? end : std::min(key + kKeyTile, end);
    for (std::int64_t j = 0; j < kKeyVectors; ++j) {
        const std::int64_t at = next + j * kKeyRows, page = pages.at(at / page_size);
        // Behind the last page something that was just read.
        const std::int64_t row = (page < 0 ? pages.at(key / page_size) : page) * page_size + at % page_size;
        next_k_[j] = k_cache.raw() + row * row_bytes;
        next_v_[j] = v_cache.raw() + row * row_bytes;
    }
}

KeyRows PageRows::load(const Tensor& k_cache, const Tensor& v_cache, const std::vector<std::int32_t>& pages,
                       std::int64_t key, std::int64_t count, std::int64_t kv_head) const {
    const std::int64_t page_size = k_cache.dim(1);
    if (page_size % kKeyRows != 0) return copied(k_cache, v_cache, pages, key, count, kv_head);
    KeyRows result;
    result.stride = shape_.kv_heads * shape_.head_dim;
    result.element_bytes = bytes_of(k_cache, 1);
    for (std::int64_t j = 0; j < count; j += kKeyRows) {
        const std::int64_t page = pages[static_cast<std::size_t>((key + j) / page_size)];
        const std::int64_t row = page * page_size + (key + j) % page_size;
        const std::int64_t offset = bytes_of(k_cache, row * result.stride + kv_head * shape_.head_dim);
        result.k[j / kKeyRows] = k_cache.raw() + offset;
        result.v[j / kKeyRows] = v_cache.raw() + offset;
    }
    result.looks_ahead = looks_ahead_;
    const std::int64_t part = bytes_of(k_cache, kKeyRows * shape_.head_dim);  // that a kv head asks for
    for (std::int64_t j = 0; looks_ahead_ && j < kKeyVectors; ++j) {
        result.next_k[j] = next_k_[j] + kv_head * part;
        result.next_v[j] = next_v_[j] + kv_head * part;
    }
    return result;
}

KeyRows PageRows::copied(const Tensor& k_cache, const Tensor& v_cache, const std::vector<std::int32_t>& pages,
                         std::int64_t key, std::int64_t count, std::int64_t kv_head) const {
    std::int64_t offsets[kKeyTile];
    find_page_rows(k_cache, v_cache, pages, key, count, kv_head, shape_, offsets);
    const std::int64_t row_bytes = bytes_of(k_cache, shape_.head_dim);
    auto* const k = reinterpret_cast<std::byte*>(page_scratch().floats(2 * kKeyTile * shape_.head_dim));
    std::byte* const v = k + kKeyTile * row_bytes;
    for (std::int64_t j = 0; j < count; ++j) {
        const std::int64_t from = bytes_of(k_cache, offsets[j]);
        std::memcpy(k + j * row_bytes, k_cache.raw() + from, static_cast<std::size_t>(row_bytes));
        std::memcpy(v + j * row_bytes, v_cache.raw() + from, static_cast<std::size_t>(row_bytes));
    }
    KeyRows result;
    result.stride = shape_.head_dim;
    result.element_bytes = bytes_of(k_cache, 1);
    for (std::int64_t j = 0; j < kKeyVectors; ++j) {
        result.k[j] = k + j * kKeyRows * row_bytes;
        result.v[j] = v + j * kKeyRows * row_bytes;
    }
    return result;
}

}  // namespace tandem::ops::detail
