// The checks that hold on every device, then the way to the backend.
#include "common/ops/batched_copy.h"

#include "common/ops/dispatch.h"

namespace tandem::ops {
namespace {

// An item that does not write only wants its checksum.
void check_item(const CopyItem& item, bool writes) {
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
    require(item.rows >= 0, "batched_copy: {} rows", item.rows);
    if (item.rows > 1) {
        require(item.from_stride >= item.from.bytes && item.from_stride % from_size == 0,
                "batched_copy: rows of {} bytes lie {} bytes apart in the source", item.from.bytes,
                item.from_stride);
        require(!writes || (item.to_stride >= item.to.bytes && item.to_stride % to_size == 0),
                "batched_copy: rows of {} bytes lie {} bytes apart in the target", item.to.bytes,
                item.to_stride);
    }
    const bool none = item.to.bytes == 0 || item.rows == 0;
    require(none || item.from.data != nullptr, "batched_copy: {} bytes from a null pointer", item.to.bytes);
}

}  // namespace

// For TANDEM_ROUTE.
static CopyItem aliased(CopyItem item) {
    item.from = host_alias(item.from);
    item.to = host_alias(item.to);
    return item;
}

void batched_copy(Stream& stream, std::span<const CopyItem> items) {
    for (const CopyItem& item : items) {
        check_item(item, item.to.data != nullptr);
        require(item.to.data != nullptr || item.checksum != nullptr || item.to.bytes == 0 || item.rows == 0,
                "batched_copy: {} bytes to a null pointer, and no checksum of them", item.to.bytes);
    }
    TANDEM_ROUTE(batched_copy, items);
}

Checksum copy_checksum(Stream& stream, const CopyItem& item) {
    check_item(item, false);
    return TANDEM_ROUTE_NOW(copy_checksum, item);
}

Checksum copy_checksum(const CopyItem& item) {
    Stream here = Stream::make_inline();
    return copy_checksum(here, item);
}

Checksum checksum(Stream& stream, ConstSpan bytes) {
    return copy_checksum(stream, {.from = bytes, .to = {nullptr, bytes.bytes}});
}

}  // namespace tandem::ops
