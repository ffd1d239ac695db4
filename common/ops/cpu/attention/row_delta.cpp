// What the backward of attention needs of a row's result and gradient, on the CPU.
#include <vector>

#include "common/ops/attention.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

constexpr std::int64_t kDeltaRows = 16;  // of a block

// delta[head * stride] = the product of row `head` of a and b [heads, dim].
TANDEM_CLONES void head_products_loop(const float* a, const float* b, std::int64_t heads, std::int64_t dim,
                                      std::int64_t stride, float* delta) {
    for (std::int64_t head = 0; head < heads; ++head, a += dim, b += dim) {
        float lanes[detail::kLanes] = {};
        std::int64_t d = 0;
        for (; d + detail::kLanes <= dim; d += detail::kLanes) {
            for (std::int64_t l = 0; l < detail::kLanes; ++l) lanes[l] += a[d + l] * b[d + l];
        }
        for (std::int64_t l = 0; d + l < dim; ++l) lanes[l] += a[d + l] * b[d + l];
        delta[head * stride] = detail::sum_lanes(lanes);
    }
}

}  // namespace

void attention_delta(Stream& stream, const Tensor& dout, const Tensor& out, Tensor delta) {
    stream.enqueue([=] {
        const std::int64_t rows = out.dim(0), heads = out.dim(1), dim = out.dim(2);
        const std::int64_t width = heads * dim;
        if (out.numel() == 0) return;
        detail::parallel_blocks(
            rows * width, kDeltaRows * width, [&](std::int64_t begin, std::int64_t count) {
                std::vector<float> scratch(static_cast<std::size_t>(2 * width));
                for (std::int64_t at = begin; at < begin + count; at += width) {
                    const float* a = detail::read_row(dout, at, width, scratch.data());
                    const float* b = detail::read_row(out, at, width, scratch.data() + width);
                    head_products_loop(a, b, heads, dim, rows, delta.data<float>() + at / width);
                }
            });
    });
}

}  // namespace tandem::ops::cpu
