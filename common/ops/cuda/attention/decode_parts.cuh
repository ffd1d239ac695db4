// Shared by the kernels of decode.cu: the cache, and the result of a part of a sequence's keys.
#pragma once

#include <cstdint>

#include "common/ops/cuda/elements.cuh"
#include "common/ops/shared/divider.h"

namespace tandem::ops::TANDEM_KERNELS {

inline constexpr int kDecodeThreads = 128;

struct Cache {
    Elements k, v;
    const std::int32_t* tables;   // [batch, table_width]
    const std::int32_t* lengths;  // [batch]
    std::int64_t table_width, page_size, kv_heads, group, head_dim, heads;
    float scale;
    shared::Divider pages;  // by page_size
};

// The result of a part for a head, in scratch [batch, heads, parts]: max, sum and the unscaled values.
struct Parts {
    float* max;
    float* sum;
    float* values;  // × head_dim
    std::int64_t count;
};

// The work of a block: some heads of a group over a part of a sequence's keys.
struct DecodeItem {
    std::int64_t sequence, kv_head, head, part;
    int heads, begin, end;  // keys [begin, end): none when the part lies past the sequence

    __device__ DecodeItem(const Cache& c, std::uint32_t parts, std::uint32_t head_blocks, int heads_of_block,
                          int part_keys) {
        std::uint32_t item = blockIdx.x;
        part = item % parts;
        item /= parts;
        const std::uint32_t block = item % head_blocks;
        item /= head_blocks;
        const auto all_kv_heads = static_cast<std::uint32_t>(c.kv_heads);
        kv_head = item % all_kv_heads;
        sequence = item / all_kv_heads;
        const int first = static_cast<int>(block) * heads_of_block;
        const int left = static_cast<int>(c.group) - first;
        head = kv_head * c.group + first;
        heads = left < heads_of_block ? left : heads_of_block;
        const int length = c.lengths[sequence];
        begin = static_cast<int>(part) * part_keys;
        end = begin + part_keys < length ? begin + part_keys : length;
    }
    // The row of a key in the cache [rows, kv_heads, head_dim].
    __device__ std::int64_t row(const Cache& c, int key) const {
        const std::uint32_t page = c.pages.quotient(static_cast<std::uint32_t>(key));
        return c.tables[sequence * c.table_width + page] * c.page_size +
               c.pages.rest(static_cast<std::uint32_t>(key), page);
    }
};

}  // namespace tandem::ops::TANDEM_KERNELS
