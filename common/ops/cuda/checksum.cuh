// The checksum of bytes on the GPU, as a batched_copy that writes nothing.
#pragma once

#include "common/ops/batched_copy.h"

namespace tandem::ops::TANDEM_KERNELS {

// After the stream's work so far. Synchronous.
inline Checksum checksum_on_gpu(Stream& stream, ConstSpan bytes) {
    Checksum result;
    const CopyItem item{.from = bytes, .to = {nullptr, bytes.bytes}, .checksum = &result};
    batched_copy(stream, {&item, 1});
    stream.synchronize();
    return result;
}

}  // namespace tandem::ops::TANDEM_KERNELS
