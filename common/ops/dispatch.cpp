#include "common/ops/dispatch.h"

namespace tandem::ops::detail {

void check_device(const char* op, Device device, const Tensor& tensor) {
    require(!tensor.defined() || tensor.numel() == 0 || tensor.device() == device, [&] {
        return fmt::format("{}: a tensor {} {} on {} for a stream on {}", op, dtype_name(tensor.dtype()),
                           to_string(tensor.shape()), to_string(tensor.device()), to_string(device));
    });
}

}  // namespace tandem::ops::detail
