// Writes a decode step's keys and values to their pages, on the CPU. The tables are read when the stream gets
// there.
#include <cstring>

#include "common/ops/attention.h"

namespace tandem::ops::cpu {

void write_pages(Stream& stream, const Tensor& k, const Tensor& v, const Tensor& pages, const Tensor& lengths,
                 Tensor k_cache, Tensor v_cache) {
    stream.enqueue([=] {
        const std::size_t row_bytes = static_cast<std::size_t>(k.dim(1) * k.dim(2)) * dtype_size(k.dtype());
        const std::int64_t page_size = k_cache.dim(1), width = pages.dim(1);
        const auto all = pages.values<std::int32_t>();
        const auto length = lengths.values<std::int32_t>();
        for (std::size_t b = 0; b < length.size(); ++b) {
            if (length[b] == 0) continue;
            const std::int64_t position = length[b] - 1;
            require(position >= 0 && position < width * page_size,
                    "write_pages: sequence {} has length {} in {} pages of {}", b, length[b], width,
                    page_size);
            const std::int64_t page =
                all[b * static_cast<std::size_t>(width) + static_cast<std::size_t>(position / page_size)];
            require(page >= 0 && page < k_cache.dim(0), "write_pages: page {} is outside the {} pages", page,
                    k_cache.dim(0));
            const auto to = static_cast<std::size_t>(page * page_size + position % page_size) * row_bytes;
            std::memcpy(k_cache.raw() + to, k.raw() + b * row_bytes, row_bytes);
            std::memcpy(v_cache.raw() + to, v.raw() + b * row_bytes, row_bytes);
        }
    });
}

}  // namespace tandem::ops::cpu
