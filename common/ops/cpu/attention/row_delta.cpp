// What the backward of attention needs of a row's result and gradient, on the CPU.
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

}  // namespace tandem::ops::cpu
