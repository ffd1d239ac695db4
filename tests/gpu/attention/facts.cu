#include "tests/gpu/attention/facts.h"

#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/instructions.cuh"
#include "common/ops/cuda/work.cuh"

namespace tandem::tests {
namespace {

namespace kernels = ops::cuda;

__global__ void product_kernel(const std::uint32_t* a, const std::uint32_t* b, const float* c, float* out) {
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    a += blockIdx.x * 16 * 8;  // pairs of neighbours
    b += blockIdx.x * 8 * 8;
    c += blockIdx.x * 16 * 8;
    out += blockIdx.x * 16 * 8;
    const std::uint32_t left[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4],
                                   a[(g + 8) * 8 + t + 4]};
    float sums[4];
    for (int i = 0; i < 4; ++i) sums[i] = c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
    kernels::multiply(sums, left, b[g * 8 + t], b[g * 8 + t + 4]);
    for (int i = 0; i < 4; ++i) out[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = sums[i];
}

__global__ void load_kernel(const std::uint32_t* rows, bool transposed, std::uint32_t* out) {
    __shared__ __align__(16) std::uint32_t shared[32 * 4];
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = 0; i < 4; ++i) shared[lane * 4 + i] = rows[lane * 4 + i];
    __syncthreads();
    std::uint32_t r[4];
    const kernels::SharedAddress row = kernels::shared_address(shared + lane * 4);
    if (transposed) {
        kernels::load_matrices_transposed(r, row);
    } else {
        kernels::load_matrices(r, row);
    }
    for (int i = 0; i < 4; ++i) out[i * 32 + lane] = r[i];
}

__global__ void exp2_kernel(const float* x, float* y, std::int64_t count) {
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < count) y[at] = kernels::fast_exp2(x[at]);
}

template <typename T>
T* as(const Tensor& tensor) {
    return reinterpret_cast<T*>(tensor.raw());
}

}  // namespace

void products_on_gpu(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& out) {
    kernels::Work(stream, "products")
        .launch(product_kernel, a.dim(0), 32, 0, as<std::uint32_t>(a), as<std::uint32_t>(b), as<float>(c),
                as<float>(out));
}

void loaded_on_gpu(Stream& stream, const Tensor& rows, bool transposed, const Tensor& out) {
    kernels::Work(stream, "loaded")
        .launch(load_kernel, 1, 32, 0, as<std::uint32_t>(rows), transposed, as<std::uint32_t>(out));
}

void exp2_on_gpu(Stream& stream, const Tensor& x, const Tensor& y) {
    kernels::Work(stream, "exp2")
        .launch(exp2_kernel, kernels::ceil_div(x.numel(), 256), 256, 0, as<float>(x), as<float>(y),
                x.numel());
}

}  // namespace tandem::tests
