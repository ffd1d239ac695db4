// What a build without CUDA answers in place of this folder.
#include "common/comm/reduce_on_gpu.h"
#include "common/device/devices.h"

namespace tandem::comm {

void cuda::reduce(Stream&, std::span<const std::byte* const>, std::byte*, std::size_t, DType, ReduceOp,
                  bool) {
    throw DeviceUnavailable(
        "this build of Tandem has no CUDA: configure with -DTANDEM_CUDA=ON (preset cuda)");
}

}  // namespace tandem::comm
