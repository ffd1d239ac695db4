// Copies with the checksum fused in: a block at a time, so that the hash and the cast work on what the cache
// holds.
#include "common/ops/batched_copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "common/error.h"
#include "common/ops/cpu/copy_kernels.h"
#include "common/ops/cpu/rows.h"

namespace tandem::ops {
namespace {

// Of the target. A cast block should stay in L1 with its source; a plain one in L2.
constexpr std::size_t kCastBytes = 2 << 10;
constexpr std::size_t kCopyBytes = 16 << 10;

void check(const CopyItem& item) {
    const std::size_t from_size = dtype_size(item.from_dtype);
    const std::size_t to_size = dtype_size(item.to_dtype);
    const bool castable = (item.from_dtype == DType::float32 && item.to_dtype == DType::bfloat16) ||
                          (item.from_dtype == DType::bfloat16 && item.to_dtype == DType::float32);
    require(item.from_dtype == item.to_dtype || castable, "batched_copy: no cast from {} to {}",
            dtype_name(item.from_dtype), dtype_name(item.to_dtype));
    require(item.from.bytes % from_size == 0 && item.to.bytes % to_size == 0 &&
                item.from.bytes / from_size == item.to.bytes / to_size,
            "batched_copy: {} bytes of {} do not fill {} bytes of {}", item.from.bytes,
            dtype_name(item.from_dtype), item.to.bytes, dtype_name(item.to_dtype));
    require(item.to.bytes == 0 || (item.from.data != nullptr && item.to.data != nullptr),
            "batched_copy: {} bytes from or to a null pointer", item.to.bytes);
}

void run(const CopyItem& item, const detail::CopyKernels& kernels) {
    detail::HashState hash;
    if (item.checksum != nullptr) kernels.hash_begin(hash);
    alignas(64) std::array<std::byte, kCastBytes> block;
    const std::size_t to_size = dtype_size(item.to_dtype);
    const std::size_t from_size = dtype_size(item.from_dtype);
    const bool cast = item.from_dtype != item.to_dtype;
    const std::size_t step = cast ? kCastBytes : kCopyBytes;
    for (std::size_t at = 0; at < item.to.bytes; at += step) {
        const std::size_t bytes = std::min(step, item.to.bytes - at);
        std::byte* to = item.to.data + at;
        const std::byte* from = item.from.data + at / to_size * from_size;
        if (cast) {
            const auto count = static_cast<std::int64_t>(bytes / to_size);
            if (item.to_dtype == DType::bfloat16) {
                kernels.narrow(from, block.data(), count);
            } else {
                kernels.widen(from, block.data(), count);
            }
            from = block.data();
        }
        if (item.checksum != nullptr) kernels.hash_update(hash, from, bytes);
        if (item.non_temporal) {
            kernels.stream_copy(from, to, bytes);
        } else if (cast || from != to) {
            std::memmove(to, from, bytes);
        }
    }
    if (item.checksum != nullptr) kernels.hash_end(hash, item.checksum->low, item.checksum->high);
}

}  // namespace

void batched_copy(Stream& stream, std::span<const CopyItem> items) {
    for (const CopyItem& item : items) check(item);
    stream.enqueue([list = std::vector<CopyItem>(items.begin(), items.end())] {
        const detail::CopyKernels& kernels = detail::copy_kernels();
        for (const CopyItem& item : list) run(item, kernels);
        kernels.fence();  // streamed stores become visible before what follows
    });
}

}  // namespace tandem::ops
