// The CPU's functions of ops whose ids, positions and pages lie in tensors: read when the stream gets there.
#include <cstring>

#include "common/ops/backends.h"
#include "common/ops/checks.h"

namespace tandem::ops::cpu {
namespace {

std::span<const std::int32_t> read(const Tensor& tensor) {
    return {tensor.data<std::int32_t>(), static_cast<std::size_t>(tensor.numel())};
}

std::vector<std::vector<std::int32_t>> tables_of(const Tensor& pages) {
    std::vector<std::vector<std::int32_t>> result;
    const auto all = read(pages);
    const auto width = static_cast<std::size_t>(pages.dim(1));
    for (std::size_t at = 0; at < all.size(); at += width)
        result.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(at),
                            all.begin() + static_cast<std::ptrdiff_t>(at + width));
    result.resize(static_cast<std::size_t>(pages.dim(0)));
    return result;
}

}  // namespace

void embedding(Stream& stream, const Tensor& table, const Tensor& ids, Tensor y) {
    stream.enqueue([=] {
        Stream here = Stream::make_inline();
        checks::embedding(table, read(ids), y);
        cpu::embedding(here, table, read(ids), y);
    });
}

void rope(Stream& stream, Tensor x, const Tensor& positions, std::int64_t limit, const RopeTable& table) {
    stream.enqueue([=] {
        for (const std::int32_t position : read(positions))
            require(position < limit, "rope: position {} is not below {}", position, limit);
        Stream here = Stream::make_inline();
        checks::rope("rope", x, read(positions), table);
        cpu::rope(here, x, read(positions), table);
    });
}

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const Tensor& pages, const Tensor& lengths, float scale, Tensor out) {
    stream.enqueue([=] {
        Stream here = Stream::make_inline();
        const auto all = read(lengths);
        cpu::paged_attention_decode(here, q, k_cache, v_cache, tables_of(pages), {all.begin(), all.end()},
                                    scale, out);
    });
}

void write_pages(Stream& stream, const Tensor& k, const Tensor& v, const Tensor& pages, const Tensor& lengths,
                 Tensor k_cache, Tensor v_cache) {
    stream.enqueue([=] {
        const std::size_t row_bytes = static_cast<std::size_t>(k.dim(1) * k.dim(2)) * dtype_size(k.dtype());
        const std::int64_t page_size = k_cache.dim(1), width = pages.dim(1);
        const auto all = read(pages);
        const auto length = read(lengths);
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
