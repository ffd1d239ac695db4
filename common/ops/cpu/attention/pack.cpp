#include "common/ops/cpu/attention/pack.h"

#include <algorithm>

#include "common/ops/cpu/instruction_sets.h"
#include "common/ops/cpu/rows.h"

namespace tandem::ops::detail {
namespace {

// Bytes from what is read of a cache's pages to what is prefetched: hardware does not run ahead from one page to the next.
constexpr std::int64_t kReadAhead = 12 << 10;

// Rows that are `stride` elements apart, from element `offset` on.
void pack(const Tensor& tensor, std::int64_t offset, std::int64_t stride, std::int64_t rows,
          const AttentionShape& shape, float factor, float* to) {
    const AttentionKernels& kernels = attention_kernels();
    if (tensor.dtype() == DType::float32) {
        const float* from = reinterpret_cast<const float*>(tensor.raw()) + offset;
        kernels.pack_float(from, stride, rows, shape.head_dim, shape.width, factor, to);
    } else {
        const auto* from = reinterpret_cast<const std::uint16_t*>(tensor.raw()) + offset;
        kernels.pack_bfloat16(from, stride, rows, shape.head_dim, shape.width, factor, to);
    }
}

// Prefetches rows that are `stride` elements apart, from element `offset` on.
void prefetch_rows(const Tensor& tensor, std::int64_t offset, std::int64_t stride, std::int64_t rows,
                   std::int64_t row_elements) {
    constexpr std::int64_t kLine = 64;
    const auto width = static_cast<std::int64_t>(dtype_size(tensor.dtype()));
    const std::int64_t row_bytes = row_elements * width;
    const std::byte* row = tensor.raw() + offset * width;
    for (; rows > 0; --rows, row += stride * width) {
        for (std::int64_t at = 0; at < row_bytes; at += kLine) __builtin_prefetch(row + at);
    }
}

// Reads these lines, and prefetches as many from `then` on.
void read_lines(const std::byte* from, std::int64_t bytes, const std::byte* then) {
    constexpr std::int64_t kLine = 64;
    for (std::int64_t at = 0; at < bytes; at += kLine) {
        __builtin_prefetch(then + at, 0, 2);
        (void)*static_cast<const volatile std::byte*>(from + at);
    }
}

}  // namespace

const AttentionKernels& attention_kernels() {
    static const AttentionKernels& chosen = [&]() -> const AttentionKernels& {
        if (runs_v4()) return kAttentionAvx512;
        if (runs_v3()) return kAttentionAvx2;
        return kAttentionBaseline;
    }();
    return chosen;
}

AttentionShape attention_shape(const Tensor& q, const Tensor& k) {
    AttentionShape s;
    s.q_rows = q.dim(0);
    s.heads = q.dim(1);
    s.head_dim = q.dim(2);
    s.kv_heads = k.dim(-2);
    s.group = s.heads / s.kv_heads;
    s.width = (s.head_dim + 15) / 16 * 16;
    return s;
}

float* Scratch::floats(std::int64_t count) {
    constexpr std::size_t kSlack = 16;
    const std::size_t wanted = static_cast<std::size_t>(count) + kSlack;
    if (memory_.size() < wanted) memory_.resize(wanted);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + ((64 - address % 64) % 64) / sizeof(float);
}

Scratch& segment_scratch() {
    thread_local Scratch scratch;
    return scratch;
}

Scratch& page_scratch() {
    thread_local Scratch scratch;
    return scratch;
}

void pack_rows(const Tensor& tensor, std::int64_t begin, std::int64_t rows, std::int64_t head,
               std::int64_t heads, const AttentionShape& shape, float factor, float* to) {
    pack(tensor, (begin * heads + head) * shape.head_dim, heads * shape.head_dim, rows, shape, factor, to);
}

PackedKeys::PackedKeys(const Tensor& k, const Tensor& v, std::int64_t begin, std::int64_t count,
                       std::int64_t kv_head, const AttentionShape& shape, Scratch& scratch, bool backward)
    : shape_(shape) {
    const std::int64_t padded = (count + kKeyTile - 1) / kKeyTile * kKeyTile;
    const std::int64_t row_floats = padded * shape.width;
    const std::int64_t column_floats = padded * shape.head_dim;
    // Starts of the parts stay multiples of 64 bytes: padded is a multiple of kKeyTile.
    k_ = scratch.floats(2 * row_floats + column_floats * (backward ? 2 : 1));
    v_ = k_ + row_floats;
    k_t_ = v_ + row_floats;
    v_t_ = k_t_ + column_floats;
    pack_rows(k, begin, count, kv_head, shape.kv_heads, shape, 1.0f, k_);
    pack_rows(v, begin, count, kv_head, shape.kv_heads, shape, 1.0f, v_);
    std::fill_n(k_ + count * shape.width, (padded - count) * shape.width, 0.0f);
    std::fill_n(v_ + count * shape.width, (padded - count) * shape.width, 0.0f);
    const AttentionKernels& kernels = attention_kernels();
    for (std::int64_t key = 0; key < count; key += kKeyTile) {
        const std::int64_t keys = std::min(kKeyTile, count - key);
        kernels.transpose_tile(k_ + key * shape.width, shape.width, keys, shape.head_dim,
                               k_t_ + key * shape.head_dim);
        if (!backward) continue;
        kernels.transpose_tile(v_ + key * shape.width, shape.width, keys, shape.head_dim,
                               v_t_ + key * shape.head_dim);
    }
}

PackedPage::PackedPage(const AttentionShape& shape, Scratch& scratch) : shape_(shape) {
    k_ = scratch.floats(kKeyTile * (2 * shape.width + shape.head_dim));
    v_ = k_ + kKeyTile * shape.width;
    k_t_ = v_ + kKeyTile * shape.width;
}

void find_page_rows(const Tensor& k_cache, const Tensor& v_cache, const std::vector<std::int32_t>& pages,
                    std::int64_t key, std::int64_t count, std::int64_t kv_head, const AttentionShape& shape,
                    std::int64_t* offsets) {
    const std::int64_t page_size = k_cache.dim(1);
    const std::int64_t stride = shape.kv_heads * shape.head_dim;
    const auto page_start = [&](std::size_t index) {
        return pages[index] * page_size * stride + kv_head * shape.head_dim;
    };
    for (std::int64_t j = 0; j < count;) {
        const auto index = static_cast<std::size_t>((key + j) / page_size);
        const std::int64_t page_end = std::min(count, static_cast<std::int64_t>(index + 1) * page_size - key);
        std::int64_t offset = page_start(index) + (key + j) % page_size * stride;
        for (; j < page_end; ++j, offset += stride) offsets[j] = offset;
        if (index + 1 == pages.size()) break;
        // The rows of a head lie apart, and hardware does not guess where those of the next page are.
        prefetch_rows(k_cache, page_start(index + 1), stride, page_size, shape.head_dim);
        prefetch_rows(v_cache, page_start(index + 1), stride, page_size, shape.head_dim);
    }
}

void read_pages(const Tensor& k_cache, const Tensor& v_cache, const PagesInTurn& pages, std::int64_t key,
                std::int64_t count) {
    const std::int64_t page_size = k_cache.dim(1);
    const std::int64_t row_bytes =
        k_cache.dim(2) * k_cache.dim(3) * static_cast<std::int64_t>(dtype_size(k_cache.dtype()));
    const std::int64_t ahead = std::max(std::int64_t{1}, kReadAhead / (page_size * row_bytes));
    while (count > 0) {
        const std::int64_t index = key / page_size, in_page = key % page_size;
        const std::int64_t rows = std::min(count, page_size - in_page);
        const std::int64_t page = pages.at(index), then = pages.at(index + ahead);
        for (const Tensor* cache : {&k_cache, &v_cache}) {
            const std::byte* const begin = cache->raw() + in_page * row_bytes;
            read_lines(begin + page * page_size * row_bytes, rows * row_bytes,
                       begin + (then < 0 ? page : then) * page_size * row_bytes);
        }
        key += rows;
        count -= rows;
    }
}

void PackedPage::load(const Tensor& k_cache, const Tensor& v_cache, const std::vector<std::int32_t>& pages,
                      std::int64_t key, std::int64_t count, std::int64_t kv_head) {
    const std::int64_t stride = shape_.kv_heads * shape_.head_dim;
    std::int64_t offsets[kKeyTile];
    find_page_rows(k_cache, v_cache, pages, key, count, kv_head, shape_, offsets);
    for (std::int64_t j = 0; j < count;) {
        std::int64_t rows = 1;  // that lie one after the other
        while (j + rows < count && offsets[j + rows] == offsets[j] + rows * stride) ++rows;
        pack(k_cache, offsets[j], stride, rows, shape_, 1.0f, k_ + j * shape_.width);
        pack(v_cache, offsets[j], stride, rows, shape_, 1.0f, v_ + j * shape_.width);
        j += rows;
    }
    attention_kernels().transpose_tile(k_, shape_.width, count, shape_.head_dim, k_t_);
}

}  // namespace tandem::ops::detail
