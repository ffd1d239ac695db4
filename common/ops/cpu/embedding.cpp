// Embedding rows on the CPU.
#include "common/ops/embedding.h"

#include <cstring>
#include <vector>

#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

TANDEM_CLONES void add_row(const float* from, float* to, std::int64_t dim) {
    for (std::int64_t i = 0; i < dim; ++i) to[i] += from[i];
}

}  // namespace

void embedding(Stream& stream, const Tensor& table, std::span<const std::int32_t> ids, Tensor y) {
    stream.enqueue([table, y, rows = std::vector<std::int32_t>(ids.begin(), ids.end())] {
        const std::size_t row_bytes = static_cast<std::size_t>(table.dim(1)) * dtype_size(table.dtype());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            std::byte* const to = y.raw() + i * row_bytes;
            if (rows[i] < 0) {
                std::memset(to, 0, row_bytes);
            } else {
                std::memcpy(to, table.raw() + static_cast<std::size_t>(rows[i]) * row_bytes, row_bytes);
            }
        }
    });
}

void embedding(Stream& stream, const Tensor& table, const Tensor& ids, Tensor y) {
    stream.enqueue([=] {
        Stream here = Stream::make_inline();
        ops::embedding(here, table, ids.values<std::int32_t>(), y);
    });
}

void embedding_backward(Stream& stream, const Tensor& dy, std::span<const std::int32_t> ids, Tensor dtable) {
    stream.enqueue([dy, dtable, rows = std::vector<std::int32_t>(ids.begin(), ids.end())] {
        const std::int64_t dim = dtable.dim(1);
        std::vector<float> scratch(static_cast<std::size_t>(dim));
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (rows[i] < 0) continue;
            const float* row = detail::read_row(dy, static_cast<std::int64_t>(i) * dim, dim, scratch.data());
            add_row(row, dtable.data<float>() + rows[i] * dim, dim);
        }
    });
}

}  // namespace tandem::ops::cpu
