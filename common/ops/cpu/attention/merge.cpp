// The two small ops of ring attention on the CPU: delta and merge.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/ops/attention.h"
#include "common/ops/cpu/rows.h"

namespace tandem::ops::cpu {

void attention_delta(Stream& stream, const Tensor& dout, const Tensor& out, Tensor delta) {
    stream.enqueue([=] {
        const std::int64_t rows = out.dim(0);
        const std::int64_t heads = out.dim(1);
        const std::int64_t dim = out.dim(2);
        std::vector<float> scratch(static_cast<std::size_t>(2 * dim));
        for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t head = 0; head < heads; ++head) {
                const std::int64_t at = (row * heads + head) * dim;
                const float* a = detail::read_row(dout, at, dim, scratch.data());
                const float* o = detail::read_row(out, at, dim, scratch.data() + dim);
                float sum = 0.0f;
                for (std::int64_t d = 0; d < dim; ++d) sum += a[d] * o[d];
                delta.data<float>()[head * rows + row] = sum;
            }
        }
    });
}

void attention_merge(Stream& stream, const Tensor& block_out, const Tensor& block_lse, std::int64_t row_begin,
                     Tensor out, Tensor lse) {
    stream.enqueue([=] {
        const std::int64_t rows = block_out.dim(0);
        const std::int64_t heads = out.dim(1);
        const std::int64_t dim = out.dim(2);
        constexpr float kNothing = -std::numeric_limits<float>::infinity();
        for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t head = 0; head < heads; ++head) {
                const float block = block_lse.data<float>()[head * rows + row];
                if (block == kNothing) continue;
                float& running = lse.data<float>()[head * out.dim(0) + row_begin + row];
                const float max = std::max(block, running);
                const float weight_block = std::exp(block - max);
                const float weight_running = std::exp(running - max);
                const float sum = weight_block + weight_running;
                const float* from = block_out.data<float>() + (row * heads + head) * dim;
                float* to = out.data<float>() + ((row_begin + row) * heads + head) * dim;
                for (std::int64_t d = 0; d < dim; ++d) {
                    to[d] = (to[d] * weight_running + from[d] * weight_block) / sum;
                }
                running = max + std::log(sum);
            }
        }
    });
}

}  // namespace tandem::ops::cpu
