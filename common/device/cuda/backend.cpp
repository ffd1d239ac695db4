#include "common/device/cuda/backend.h"

#include "common/device/cuda/devices.h"
#include "common/device/cuda/memory.h"

namespace tandem::cuda {

const detail::DeviceBackend& backend() {
    static const detail::DeviceBackend table{.gpus = gpus,
                                             .pinned_pool = pinned_pool,
                                             .make_stream = make_stream,
                                             .pool = pool,
                                             .trim_pool = trim_pool,
                                             .free_bytes = free_bytes,
                                             .can_access_peer = can_access_peer,
                                             .enable_peer_access = enable_peer_access,
                                             .make_export_arena = make_export_arena,
                                             .open_arena = open_arena,
                                             .export_range = export_range,
                                             .make_shared_event = make_shared_event,
                                             .open_shared_event = open_shared_event,
                                             .make_virtual_arena = make_virtual_arena,
                                             .open_virtual_arena = open_virtual_arena};
    return table;
}

}  // namespace tandem::cuda
