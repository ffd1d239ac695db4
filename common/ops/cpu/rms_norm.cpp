// RMSNorm on the CPU: a row at a time, in fp32.
#include "common/ops/rms_norm.h"

#include <cmath>
#include <vector>

#include "common/ops/cpu/lines.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/rows.h"
#include "common/ops/cpu/simd.h"

namespace tandem::ops::cpu {
namespace {

using detail::kLanes;

TANDEM_CLONES float dot3_loop(const float* a, const float* b, const float* c, std::int64_t dim) {
    float lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) {
        for (int l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l] * c[i + l];
    }
    for (int l = 0; i + l < dim; ++l) lanes[l] += a[i + l] * b[i + l] * c[i + l];
    return detail::sum_lanes(lanes);
}

TANDEM_CLONES float row_square_sum_loop(const float* x, std::int64_t dim) {
    float lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) {
        for (int l = 0; l < kLanes; ++l) lanes[l] += x[i + l] * x[i + l];
    }
    for (int l = 0; i + l < dim; ++l) lanes[l] += x[i + l] * x[i + l];
    return detail::sum_lanes(lanes);
}

TANDEM_CLONES void normalise_loop(const float* x, const float* weight, float rstd, float* y,
                                  std::int64_t dim) {
    for (std::int64_t i = 0; i < dim; ++i) y[i] = x[i] * rstd * weight[i];
}

// dx = rstd * (dy * w - x * rstd² * mean(dy * w * x)); dw += dy * x * rstd
TANDEM_CLONES void backward_loop(const float* dy, const float* x, const float* weight, float rstd,
                                 float mean_dot, const float* dx_before, float* dx, float* dweight,
                                 std::int64_t dim) {
    const float factor = rstd * rstd * mean_dot;
    for (std::int64_t i = 0; i < dim; ++i) {
        dx[i] = dx_before[i] + rstd * (dy[i] * weight[i] - x[i] * factor);
        dweight[i] += dy[i] * (x[i] * rstd);
    }
}

// A thread's memory between its norms.
struct NormMemory {
    detail::Lines rows, weight;
    static NormMemory& own() {
        thread_local NormMemory instance;
        return instance;
    }
};

float* room_for(detail::Lines& memory, std::int64_t floats) {
    memory.reserve(static_cast<std::size_t>(floats) * sizeof(float));
    return reinterpret_cast<float*>(memory.data());
}

// y of rows of x, to which `update` is added before where it is defined.
void norm_rows(const Tensor& x, const Tensor& update, const Tensor& weight, float eps, const Tensor& y,
               const Tensor& rstd) {
    const std::int64_t dim = x.dim(-1);
    const float* const w = detail::read_row(weight, 0, dim, room_for(NormMemory::own().weight, dim));
    detail::parallel_rows(x.numel() / dim, dim, [&](std::int64_t first, std::int64_t count) {
        float* const scratch = room_for(NormMemory::own().rows, 3 * dim);
        for (std::int64_t row = first; row < first + count; ++row) {
            const std::int64_t at = row * dim;
            if (update.defined()) {
                float* const sum = detail::begin_row(x, at, scratch);
                detail::read_row(x, at, dim, scratch);
                detail::add_into(sum, detail::read_row(update, at, dim, scratch + 2 * dim), dim);
                detail::finish_row(x, at, dim, sum);
            }
            const float* const in = detail::read_row(x, at, dim, scratch);
            float* const out = detail::begin_row(y, at, scratch + dim);
            const float mean = row_square_sum_loop(in, dim) / static_cast<float>(dim);
            const float r = 1.0f / std::sqrt(mean + eps);
            normalise_loop(in, w, r, out, dim);
            detail::finish_row(y, at, dim, out);
            if (rstd.defined()) rstd.data<float>()[row] = r;
        }
    });
}

}  // namespace

void rms_norm(Stream& stream, const Tensor& x, const Tensor& weight, float eps, Tensor y, Tensor rstd) {
    stream.enqueue([=] { norm_rows(x, {}, weight, eps, y, rstd); });
}

void add_rms_norm(Stream& stream, Tensor x, const Tensor& update, const Tensor& weight, float eps, Tensor y) {
    stream.enqueue([=] { norm_rows(x, update, weight, eps, y, {}); });
}

void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, Tensor dx, Tensor dweight, bool accumulate_dx) {
    const std::int64_t dim = x.dim(-1);
    const std::int64_t rows = x.numel() / dim;
    stream.enqueue([=] {
        std::vector<float> scratch(static_cast<std::size_t>(6 * dim));
        const float* w = detail::read_row(weight, 0, dim, scratch.data());
        const float* zeros = scratch.data() + 5 * dim;
        for (std::int64_t row = 0; row < rows; ++row) {
            const std::int64_t at = row * dim;
            const float* grad = detail::read_row(dy, at, dim, scratch.data() + dim);
            const float* in = detail::read_row(x, at, dim, scratch.data() + 2 * dim);
            const float* before =
                accumulate_dx ? detail::read_row(dx, at, dim, scratch.data() + 3 * dim) : zeros;
            float* out = detail::begin_row(dx, at, scratch.data() + 4 * dim);
            const float mean_dot = dot3_loop(grad, w, in, dim) / static_cast<float>(dim);
            backward_loop(grad, in, w, rstd.data<float>()[row], mean_dot, before, out, dweight.data<float>(),
                          dim);
            detail::finish_row(dx, at, dim, out);
        }
    });
}

}  // namespace tandem::ops::cpu
