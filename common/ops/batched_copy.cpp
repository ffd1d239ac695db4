// The checks that hold on every device, then the way to the backend.
#include "common/ops/batched_copy.h"

#include "common/ops/dispatch.h"
#include "common/ops/half.h"

namespace tandem::ops {

// For TANDEM_ROUTE.
static CopyItem aliased(CopyItem item) {
    item.from = host_alias(item.from);
    item.to = host_alias(item.to);
    return item;
}

bool copy_casts(DType from, DType to) {
    const auto floating = [](DType dtype) {
        return dtype == DType::float32 || dtype == DType::bfloat16 || dtype == DType::float16;
    };
    return from == to || (floating(from) && floating(to));
}

void batched_copy(Stream& stream, std::span<const CopyItem> items) {
    for (const CopyItem& item : items) {
        const std::size_t from_size = dtype_size(item.from_dtype);
        const std::size_t to_size = dtype_size(item.to_dtype);
        require(copy_casts(item.from_dtype, item.to_dtype), "batched_copy: no cast from {} to {}",
                dtype_name(item.from_dtype), dtype_name(item.to_dtype));
        require(item.from.bytes % from_size == 0 && item.to.bytes % to_size == 0 &&
                    item.from.bytes / from_size == item.to.bytes / to_size,
                "batched_copy: {} bytes of {} do not fill {} bytes of {}", item.from.bytes,
                dtype_name(item.from_dtype), item.to.bytes, dtype_name(item.to_dtype));
        require(item.rows >= 0, "batched_copy: {} rows", item.rows);
        const bool writes = item.to.data != nullptr;  // else it only wants its checksum
        if (item.rows > 1) {
            require(item.from_stride >= item.from.bytes && item.from_stride % from_size == 0,
                    "batched_copy: rows of {} bytes lie {} bytes apart in the source", item.from.bytes,
                    item.from_stride);
            require(!writes || (item.to_stride >= item.to.bytes && item.to_stride % to_size == 0),
                    "batched_copy: rows of {} bytes lie {} bytes apart in the target", item.to.bytes,
                    item.to_stride);
        }
        const bool none = item.to.bytes == 0 || item.rows == 0;
        require(none || item.from.data != nullptr, "batched_copy: {} bytes from a null pointer",
                item.to.bytes);
        require(none || writes || item.checksum != nullptr,
                "batched_copy: {} bytes to a null pointer, and no checksum of them", item.to.bytes);
    }
    TANDEM_ROUTE(batched_copy, items);
}

Checksum copy_checksum(Stream& stream, const CopyItem& item) {
    Checksum result;
    CopyItem read = item;
    read.to.data = nullptr;
    read.checksum = &result;
    batched_copy(stream, {&read, 1});
    stream.synchronize();
    return result;
}

Checksum copy_checksum(const CopyItem& item) {
    Stream here = Stream::make_inline();
    return copy_checksum(here, item);
}

Checksum checksum(Stream& stream, ConstSpan bytes) {
    return copy_checksum(stream, {.from = bytes, .to = {nullptr, bytes.bytes}});
}

}  // namespace tandem::ops
