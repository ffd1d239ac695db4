// The checks that hold on every device, then the way to the backend.
#include "common/ops/batched_copy.h"

#include <vector>

#include "common/ops/checked_copy.h"
#include "common/ops/dispatch.h"

namespace tandem::ops {
namespace {

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
    require(none || (item.from.data != nullptr && (!writes || item.to.data != nullptr)),
            "batched_copy: {} bytes from or to a null pointer", item.to.bytes);
}

void run_all(const std::vector<CopyItem>& items) {
    Stream here = Stream::make_inline();
    for (const CopyItem& item : items) {
        if (item.to.data != nullptr) {
            cpu::batched_copy(here, {&item, 1});
        } else if (item.checksum != nullptr) {
            *item.checksum = copy_checksum(item);
        }
    }
}

}  // namespace

// For TANDEM_ROUTE.
static CopyItem aliased(CopyItem item) {
    item.from = host_alias(item.from);
    item.to = host_alias(item.to);
    return item;
}

void batched_copy(Stream& stream, std::span<const CopyItem> items) {
    for (const CopyItem& item : items) check_item(item, true);
    TANDEM_ROUTE(batched_copy, items);
}

void checked_copy(Stream& stream, std::span<const CopyItem> items) {
    std::vector<CopyItem> list(items.begin(), items.end());
    for (CopyItem& item : list) {
        const bool writes = item.to.data != nullptr;
        check_item(item, writes);
        if (!writes) item.to_stride = item.to.bytes;  // the rows of what would be written
    }
    if (stream.device().type == DeviceType::cpu) {
        stream.enqueue([list = std::move(list)] { run_all(list); });
        return;
    }
    if (computes_on_cpu(stream.device())) {
        for (CopyItem& item : list) {
            item.from = host_alias(item.from);
            if (item.to.data != nullptr) item.to = host_alias(item.to);
        }
        launch_on_cpu(stream, [list = std::move(list)] { run_all(list); });
        return;
    }
#if TANDEM_WITH_CUDA
    cuda::batched_copy(stream, list);  // what has no target is only read
#else
    throw DeviceUnavailable("checked_copy: this build has no CUDA");
#endif
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
