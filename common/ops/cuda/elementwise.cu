// Casts, sums and fills: a thread takes eight elements, then the eight that lie a grid further.
#include "common/ops/cuda/backend.cuh"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/work.cuh"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kThreads = 256;

std::int64_t blocks_for(std::int64_t count) {
    return std::min(ceil_div(count, kThreads * kVector), kGridBlocks);
}

__device__ __forceinline__ std::int64_t first_element() {
    return (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVector;
}

__device__ __forceinline__ std::int64_t grid_elements() {
    return static_cast<std::int64_t>(gridDim.x) * blockDim.x * kVector;
}

__global__ void __launch_bounds__(kThreads) cast_kernel(Elements from, Elements to, std::int64_t count) {
    for (std::int64_t at = first_element(); at < count; at += grid_elements()) {
        float v[8];
        load8(from, at, count - at, v);
        store8(to, at, count - at, v);
    }
}

__global__ void __launch_bounds__(kThreads)
    cast_half_kernel(const std::uint16_t* from, Elements to, std::int64_t count) {
    for (std::int64_t at = first_element(); at < count; at += grid_elements()) {
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = at + i < count ? shared::float_of_half(from[at + i]) : 0.0f;
        store8(to, at, count - at, v);
    }
}

__global__ void __launch_bounds__(kThreads) add_kernel(Elements a, Elements b, std::int64_t count) {
    for (std::int64_t at = first_element(); at < count; at += grid_elements()) {
        float x[8], y[8];
        load8(a, at, count - at, x);
        load8(b, at, count - at, y);
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] += y[i];
        store8(a, at, count - at, x);
    }
}

__global__ void __launch_bounds__(kThreads) scale_kernel(Elements a, float factor, std::int64_t count) {
    for (std::int64_t at = first_element(); at < count; at += grid_elements()) {
        float v[8];
        load8(a, at, count - at, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] *= factor;
        store8(a, at, count - at, v);
    }
}

}  // namespace

void cast(Stream& stream, const Tensor& from, Tensor to) {
    Work work(stream, "cast");
    const std::int64_t count = from.numel();
    if (from.dtype() == to.dtype()) {
        if (from.raw() != to.raw()) work.copy(from.raw(), to.raw(), from.bytes());
    } else if (from.dtype() == DType::float16) {
        work.launch(cast_half_kernel, blocks_for(count), kThreads, 0,
                    reinterpret_cast<const std::uint16_t*>(from.raw()), flat(to), count);
    } else {
        work.launch(cast_kernel, blocks_for(count), kThreads, 0, flat(from), flat(to), count);
    }
}

void add(Stream& stream, Tensor a, const Tensor& b) {
    Work work(stream, "add");
    work.launch(add_kernel, blocks_for(a.numel()), kThreads, 0, flat(a), flat(b), a.numel());
}

void scale(Stream& stream, Tensor a, float factor) {
    Work work(stream, "scale");
    work.launch(scale_kernel, blocks_for(a.numel()), kThreads, 0, flat(a), factor, a.numel());
}

void fill_zero(Stream& stream, Tensor a) {
    Work work(stream, "fill_zero");
    work.clear(a.raw(), a.bytes());
}

}  // namespace tandem::ops::TANDEM_KERNELS
