// Element-wise reduction over peers' mapped memory: one pass, each thread adds its elements in the order of
// the sources, in fp32 (int64 for int64), rounds once. 16 bytes a load where all addresses allow it.
#include <algorithm>
#include <cstdint>

#include "common/comm/reduce_on_gpu.h"
#include "common/error.h"
#include "common/ops/cuda/portable.cuh"
#include "common/tensor/dtype.h"
#if !defined(TANDEM_KERNELS_ON_HOST)
#include "common/device/cuda/native.h"
#endif

namespace tandem::comm::TANDEM_KERNELS {
namespace {

struct Sources {
    const void* at[kMaxSources];
};

enum class Fold : int { sum, max, min };

template <typename T>
struct alignas(16) Pack {
    static constexpr int kCount = 16 / static_cast<int>(sizeof(T));
    T values[kCount];
};
template <typename T>
struct One {
    static constexpr int kCount = 1;
    T values[kCount];
};

template <Fold fold, typename Acc>
__device__ Acc combine(Acc a, Acc b) {
    if (fold == Fold::max) return a < b ? b : a;
    if (fold == Fold::min) return b < a ? b : a;
    return a + b;
}

// T: element; Acc: float or int64. `first`: where this launch begins, in units of Unit.
template <template <typename> typename Unit, Fold fold, typename T, typename Acc>
__device__ void reduce_unit(const Sources& sources, int n, T* out, std::size_t unit, float divide_by,
                            bool accumulate) {
    using U = Unit<T>;
    Acc acc[U::kCount];
    const U first = reinterpret_cast<const U*>(sources.at[0])[unit];
    for (int k = 0; k < U::kCount; ++k) acc[k] = static_cast<Acc>(first.values[k]);
    for (int s = 1; s < n; ++s) {
        const U next = reinterpret_cast<const U*>(sources.at[s])[unit];
        for (int k = 0; k < U::kCount; ++k)
            acc[k] = combine<fold, Acc>(acc[k], static_cast<Acc>(next.values[k]));
    }
    U* to = reinterpret_cast<U*>(out) + unit;
    U result;
    if (accumulate) result = *to;
    for (int k = 0; k < U::kCount; ++k) {
        if constexpr (sizeof(Acc) == sizeof(float)) {
            if (divide_by != 0.0F) acc[k] = __fdiv_rn(acc[k], divide_by);
            if (accumulate) acc[k] = static_cast<float>(result.values[k]) + acc[k];
        }
        result.values[k] = T(acc[k]);
    }
    *to = result;
}

template <Fold fold, typename T, typename Acc>
__global__ void reduce_kernel(const __grid_constant__ Sources sources, int n, T* out, std::size_t count,
                              bool packed, float divide_by, bool accumulate) {
    const std::size_t thread = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    const std::size_t threads = gridDim.x * static_cast<std::size_t>(blockDim.x);
    const std::size_t packs = packed ? count / Pack<T>::kCount : 0;
    for (std::size_t i = thread; i < packs; i += threads)
        reduce_unit<Pack, fold, T, Acc>(sources, n, out, i, divide_by, accumulate);
    for (std::size_t i = packs * Pack<T>::kCount + thread; i < count; i += threads)
        reduce_unit<One, fold, T, Acc>(sources, n, out, i, divide_by, accumulate);
}

template <typename T>
using Kernel = void (*)(Sources, int, T*, std::size_t, bool, float, bool);

template <typename T>
void launch_kernel(Kernel<T> kernel, Stream& stream, std::int64_t blocks, int threads, Sources sources, int n,
                   T* out, std::size_t count, bool packed, float divide_by, bool accumulate) {
#if defined(TANDEM_KERNELS_ON_HOST)
    static_cast<void>(stream);
    fibers::run_blocks(blocks, threads, 0,
                       [&] { kernel(sources, n, out, count, packed, divide_by, accumulate); });
#else
    void* arguments[] = {&sources, &n, &out, &count, &packed, &divide_by, &accumulate};
    const cudaError_t error =
        cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(blocks)),
                         dim3(static_cast<unsigned>(threads)), arguments, 0, tandem::cuda::native(stream));
    if (error != cudaSuccess) {
        cudaGetLastError();  // not again from the next call
        throw CudaError(
            fmt::format("reduction of {} elements over {} ranks on {}", count, n, to_string(stream.device())),
            cudaGetErrorName(error), cudaGetErrorString(error));
    }
#endif
}

template <typename T, typename Acc>
void launch(Stream& stream, const Sources& sources, int n, std::byte* out, std::size_t count, bool packed,
            ReduceOp op, bool accumulate) {
    constexpr int kThreads = 256;
    const std::size_t units = packed ? count / Pack<T>::kCount + 1 : count;
    const auto blocks =
        static_cast<std::int64_t>(std::min<std::size_t>((units + kThreads - 1) / kThreads, 4096));
    const float divide_by = op == ReduceOp::avg ? static_cast<float>(n) : 0.0F;
    Kernel<T> kernel = reduce_kernel<Fold::sum, T, Acc>;
    if (op == ReduceOp::max) kernel = reduce_kernel<Fold::max, T, Acc>;
    if (op == ReduceOp::min) kernel = reduce_kernel<Fold::min, T, Acc>;
    launch_kernel<T>(kernel, stream, blocks, kThreads, sources, n, reinterpret_cast<T*>(out), count, packed,
                     divide_by, accumulate);
}

bool aligned(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

}  // namespace

void reduce(Stream& stream, std::span<const std::byte* const> from, std::byte* out, std::size_t bytes,
            DType dtype, ReduceOp op, bool accumulate) {
    require(from.size() <= kMaxSources, "a reduction over {} ranks; {} are possible", from.size(),
            kMaxSources);
    Sources sources{};
    bool packed = aligned(out);
    for (std::size_t s = 0; s < from.size(); ++s) {
        sources.at[s] = from[s];
        packed = packed && aligned(from[s]);
    }
    const int n = static_cast<int>(from.size());
    const std::size_t count = bytes / dtype_size(dtype);
    if (dtype == DType::float32) {
        launch<float, float>(stream, sources, n, out, count, packed, op, accumulate);
    } else if (dtype == DType::bfloat16) {
        launch<bfloat16, float>(stream, sources, n, out, count, packed, op, false);
    } else {
        launch<std::int64_t, std::int64_t>(stream, sources, n, out, count, packed, op, false);
    }
}

}  // namespace tandem::comm::TANDEM_KERNELS
