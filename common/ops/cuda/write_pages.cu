// Writes a decode step's keys and values to their pages, whose numbers are on the device. Rows move as bits,
// 16 bytes at a time if they are aligned.
#include "common/ops/attention.h"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/work.cuh"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

struct PageRows {
    const std::byte *k, *v;        // [batch, row_bytes]
    std::byte *k_cache, *v_cache;  // [pages, page_size, row_bytes]
    const std::int32_t *pages, *lengths;
    std::int64_t width, page_size, row_bytes;
    int unit;  // bytes of an access: 16 or 2
};

__device__ __forceinline__ void move(const std::byte* from, std::byte* to, int unit) {
    if (unit == 16) {
        store16(to, load16(from));
    } else {
        *reinterpret_cast<std::uint16_t*>(to) = *reinterpret_cast<const std::uint16_t*>(from);
    }
}

// Grid: sequences.
__global__ void __launch_bounds__(kThreads) write_kernel(PageRows rows) {
    const std::int64_t sequence = blockIdx.x;
    const std::int64_t position = rows.lengths[sequence] - 1;
    if (position < 0) return;
    const std::int64_t page = rows.pages[sequence * rows.width + position / rows.page_size];
    const std::int64_t from = sequence * rows.row_bytes;
    const std::int64_t to = (page * rows.page_size + position % rows.page_size) * rows.row_bytes;
    for (std::int64_t at = threadIdx.x * rows.unit; at < rows.row_bytes; at += kThreads * rows.unit) {
        move(rows.k + from + at, rows.k_cache + to + at, rows.unit);
        move(rows.v + from + at, rows.v_cache + to + at, rows.unit);
    }
}

}  // namespace

void write_pages(Stream& stream, const Tensor& k, const Tensor& v, const Tensor& pages, const Tensor& lengths,
                 Tensor k_cache, Tensor v_cache) {
    Work work(stream, "write_pages");
    const std::size_t row_bytes = static_cast<std::size_t>(k.dim(1) * k.dim(2)) * dtype_size(k.dtype());
    std::uintptr_t bits = row_bytes;
    for (const std::byte* data : {k.raw(), v.raw(), k_cache.raw(), v_cache.raw()})
        bits |= reinterpret_cast<std::uintptr_t>(data);
    work.launch(write_kernel, k.dim(0), kThreads, 0,
                PageRows{k.raw(), v.raw(), k_cache.raw(), v_cache.raw(), pages.data<std::int32_t>(),
                         lengths.data<std::int32_t>(), pages.dim(1), k_cache.dim(1),
                         static_cast<std::int64_t>(row_bytes), bits % 16 == 0 ? 16 : 2});
}

}  // namespace tandem::ops::TANDEM_KERNELS
