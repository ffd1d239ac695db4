// One list, three devices: the CPU's loops, the same launched on a GPU that computes there, a GPU's kernels.
#include "common/ops/checked_copy.h"

#include <vector>

#include "common/device/cpu_kernels.h"
#include "common/device/devices.h"
#include "common/ops/backends.h"
#include "common/ops/checks.h"

namespace tandem::ops {
namespace {

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

void checked_copy(Stream& stream, std::span<const CopyItem> items) {
    std::vector<CopyItem> list(items.begin(), items.end());
    for (CopyItem& item : list) {
        const bool writes = item.to.data != nullptr;
        checks::copy_item(item, writes);
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

}  // namespace tandem::ops
