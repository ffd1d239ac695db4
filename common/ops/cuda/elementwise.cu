// Casts, sums and fills: a thread takes eight elements, then the eight that lie a grid further.
#include "common/ops/cuda/eights.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/elementwise.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

std::int64_t blocks_for(std::int64_t count) {
    return std::min(ceil_div(count, kThreads * kVector), kGridBlocks);
}

// Float32 to bfloat16 or back. `reach` is of tensors whose dtypes are those.
template <bool kNarrow>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(Elements from, Elements to, Reach reach, std::int64_t count) {
    for_eights(reach, count, [&](const auto& eight) {
        float v[8];
        eight.template load<!kNarrow>(from, v);
        eight.template store<kNarrow>(to, v);
    });
}

__global__ void __launch_bounds__(kThreads)
    cast_half_kernel(const std::uint16_t* from, Elements to, Reach reach, std::int64_t count) {
    for_eights(reach, count, [&](const auto& eight) {
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i)
            v[i] = eight.has(i) ? shared::float_of_half(from[eight.element(i)]) : 0.0f;
        eight.store(to, v);
    });
}

__global__ void __launch_bounds__(kThreads)
    add_kernel(Elements a, Elements b, Reach reach, std::int64_t count) {
    for_eights(reach, count, [&](const auto& eight) {
        float x[8], y[8];
        eight.load(a, x);
        eight.load(b, y);
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] += y[i];
        eight.store(a, x);
    });
}

__global__ void __launch_bounds__(kThreads)
    scale_kernel(Elements a, float factor, Reach reach, std::int64_t count) {
    for_eights(reach, count, [&](const auto& eight) {
        float v[8];
        eight.load(a, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] *= factor;
        eight.store(a, v);
    });
}

}  // namespace

void cast(Stream& stream, const Tensor& from, Tensor to) {
    Work work(stream, "cast");
    const std::int64_t count = from.numel();
    if (from.dtype() == to.dtype()) {
        if (from.raw() != to.raw()) work.copy(from.raw(), to.raw(), from.bytes());
    } else if (from.dtype() == DType::float16) {
        const Elements wide = flat(to);
        work.launch(cast_half_kernel, blocks_for(count), kThreads, 0,
                    reinterpret_cast<const std::uint16_t*>(from.raw()), wide, reach(false, wide), count);
    } else {
        const Elements a = flat(from), b = flat(to);
        work.launch(b.is_bfloat16 ? cast_kernel<true> : cast_kernel<false>, blocks_for(count), kThreads, 0, a,
                    b, reach(true, a, b), count);
    }
}

void add(Stream& stream, Tensor a, const Tensor& b) {
    Work work(stream, "add");
    const Elements x = flat(a), y = flat(b);
    work.launch(add_kernel, blocks_for(a.numel()), kThreads, 0, x, y, reach(false, x, y), a.numel());
}

void scale(Stream& stream, Tensor a, float factor) {
    Work work(stream, "scale");
    const Elements v = flat(a);
    work.launch(scale_kernel, blocks_for(a.numel()), kThreads, 0, v, factor, reach(false, v), a.numel());
}

void fill_zero(Stream& stream, Tensor a) {
    Work work(stream, "fill_zero");
    work.clear(a.raw(), a.bytes());
}

}  // namespace tandem::ops::TANDEM_KERNELS
