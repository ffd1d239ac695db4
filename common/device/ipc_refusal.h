// Why a GPU's memory is not shared between processes, in the same words for every kind of GPU. For
// common/device only.
#pragma once

#include <string_view>

#include "common/device/export.h"

namespace tandem::detail {

// The memory has no handle. `answer`: the driver's.
inline IpcRefused not_shareable(Device device, std::string_view answer) {
    return IpcRefused(fmt::format(
        "memory of {} cannot be shared: {}. Only plain device memory can (cuMemAlloc, cudaMalloc), "
        "not that of cuMemCreate (torch's expandable segments), of a stream-ordered pool or of the "
        "host; and not on every platform (not under WSL)",
        to_string(device), answer));
}

enum class NotOpened { gone_or_foreign, own, no_peer_access };

// Another process's `what` is not opened here.
inline IpcRefused not_opened(Device device, std::string_view what, NotOpened why, std::string_view answer) {
    constexpr std::string_view kWhy[] = {
        "the exporting process ended or freed it, runs as another user or in another container, or it is no "
        "handle of this machine's GPUs: run both as one user, in one container",
        "a process cannot open the handle of its own memory: use the memory directly",
        "it lies on a GPU that this one has no peer access to: run both processes on one GPU, or on two that "
        "reach each other (nvidia-smi topo -m)"};
    return IpcRefused(fmt::format("{} of another process cannot be opened on {}: {} ({})", what,
                                  to_string(device), kWhy[static_cast<std::size_t>(why)], answer));
}

}  // namespace tandem::detail
