#include "trainer/run/device_choice.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/device/devices.h"

namespace tandem::trainer {
namespace {

Device gpu(std::int64_t index) {
    return {DeviceType::cuda, static_cast<int>(index)};
}

}  // namespace

std::int64_t gpu_count() {
    const auto count = static_cast<std::int64_t>(available_devices().size()) - 1;
    if (count == 0) require_device({DeviceType::cuda, 0});  // says why
    return count;
}

bool engine_has_own_gpu(const RunConfig& c) {
    return c.sync.transport == "nccl" && c.engine.url.empty();
}

Device device_of_rank(const RunConfig& c, int rank, int local_rank) {
    if (c.run.device == "cpu") return {};
    const bool beside_engine = rank == local_rank;  // on the host of rank 0
    const std::int64_t mine = gpu_count() - (beside_engine && engine_has_own_gpu(c) ? 1 : 0);
    return gpu(local_rank % std::max<std::int64_t>(mine, 1));
}

Device device_of_engine(const RunConfig& c) {
    if (c.run.device == "cpu") return {};
    if (engine_has_own_gpu(c)) return gpu(std::min(c.world_size(), gpu_count() - 1));
    return gpu(c.world_size() % gpu_count());
}

void check_device(const RunConfig& c, const config::Schema& s) {
    if (c.run.device == "cuda") {
        try {
            require_device({DeviceType::cuda, 0});
        } catch (const DeviceUnavailable& error) {
            s.refuse("run.device", error.what());
        }
    }
}

}  // namespace tandem::trainer
