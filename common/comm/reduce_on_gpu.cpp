#include "common/comm/reduce_on_gpu.h"

#include <vector>

#include "common/comm/reduce.h"
#include "common/device/cpu_kernels.h"
#include "common/device/devices.h"
#include "common/error.h"

namespace tandem::comm {

void reduce_on_gpu(Stream& stream, std::span<const std::byte* const> sources, std::byte* out,
                   std::size_t bytes, DType dtype, ReduceOp op, bool accumulate) {
    require(stream.device().type == DeviceType::cuda, "stream '{}' is on {}, not on a GPU", stream.name(),
            to_string(stream.device()));
    require_reducible(dtype, op);
    if (bytes == 0) return;
    if (!computes_on_cpu(stream.device())) {
#if TANDEM_WITH_CUDA
        cuda::reduce(stream, sources, out, bytes, dtype, op, accumulate);
        return;
#else
        throw DeviceUnavailable("reduce: this build has no CUDA");
#endif
    }
    std::vector<const std::byte*> aliases;
    for (const std::byte* source : sources) aliases.push_back(host_alias(source));
    launch_on_cpu(stream, [aliases = std::move(aliases), out = host_alias(out), bytes, dtype, op,
                           accumulate] { reduce(aliases, out, bytes, dtype, op, accumulate); });
}

}  // namespace tandem::comm
