// Tensor maps, by the driver, and which GPUs take them.
#include "common/ops/cuda/tensor_map.cuh"

#if !defined(TANDEM_KERNELS_ON_HOST)
#include <array>
#include <atomic>

#include "common/device/cuda/driver.h"
#include "common/ops/cuda/check.cuh"
#include "common/ops/cuda/work.cuh"
#endif

namespace tandem::ops::TANDEM_KERNELS {

#if defined(TANDEM_KERNELS_ON_HOST)

bool on_hopper(Stream&) {
    return fibers::as_hopper();
}

TensorMap tensor_map(const void* data, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                     int box_rows, int box_columns) {
    return fibers::tensor_map(data, {head_dim, heads, rows}, {2 * head_dim, 2 * heads * head_dim},
                              {box_columns, 1, box_rows}, 2 * box_columns);
}

#else

namespace {

// Of which it is asked for which GPU it was compiled.
__global__ void architecture_kernel() {}

bool find_out(int device) {
    int major = 0, minor = 0;
    cudaFuncAttributes compiled{};
    check("tensor_map", "cudaDeviceGetAttribute",
          cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    check("tensor_map", "cudaDeviceGetAttribute",
          cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    check("tensor_map", "cudaFuncGetAttributes", cudaFuncGetAttributes(&compiled, architecture_kernel));
    return major == 9 && minor == 0 && compiled.ptxVersion >= 90;
}

}  // namespace

bool on_hopper(Stream& stream) {
    enum : int { kUnknown, kNo, kYes };
    static std::array<std::atomic<int>, 64> known{};
    std::atomic<int>& mine = known.at(static_cast<std::size_t>(device_key(stream)));
    if (mine.load() == kUnknown) mine.store(find_out(device_key(stream)) ? kYes : kNo);
    return mine.load() == kYes;
}

TensorMap tensor_map(const void* data, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                     int box_rows, int box_columns) {
    const cuuint64_t sizes[] = {static_cast<cuuint64_t>(head_dim), static_cast<cuuint64_t>(heads),
                                static_cast<cuuint64_t>(rows)};
    const cuuint64_t head_bytes = 2 * sizes[0];
    const cuuint64_t stride_bytes[] = {head_bytes, head_bytes * sizes[1]};
    const cuuint32_t box[] = {static_cast<cuuint32_t>(box_columns), 1, static_cast<cuuint32_t>(box_rows)};
    const cuuint32_t steps[] = {1, 1, 1};
    TensorMap map;
    ::tandem::cuda::check(::tandem::cuda::driver().cuTensorMapEncodeTiled(
                              &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), sizes,
                              stride_bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                              box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                          "cuTensorMapEncodeTiled");
    return map;
}

#endif

}  // namespace tandem::ops::TANDEM_KERNELS
