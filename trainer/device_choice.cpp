#include "trainer/device_choice.h"

#include <fmt/format.h>

#include "common/device/devices.h"

namespace tandem::trainer {
namespace {

Device device_at(const RunConfig& c, std::int64_t index) {
    if (c.run.device == "cpu") return {};
    const auto gpus = static_cast<std::int64_t>(available_devices().size()) - 1;
    if (gpus == 0) require_device({DeviceType::cuda, 0});  // says why
    return {DeviceType::cuda, static_cast<int>(index % gpus)};
}

}  // namespace

Device device_of_rank(const RunConfig& c, int local_rank) {
    return device_at(c, local_rank);
}

Device device_of_engine(const RunConfig& c) {
    return device_at(c, c.world_size());
}

void check_device(const RunConfig& c, const config::Schema& s) {
    if (c.run.device == "cpu") return;
    try {
        require_device({DeviceType::cuda, 0});
    } catch (const DeviceUnavailable& error) {
        s.refuse("run.device", error.what());
    }
    const bool shards_leave =
        c.memory.trainer_sleep == "all" || c.memory.offload == "parameters" || c.memory.offload == "all";
    if (c.sync.mode == "direct" && shards_leave) {
        s.refuse("sync.mode",
                 "direct lets the engine open the shards' memory, and a GPU's memory that is given back "
                 "(memory.offload = parameters or all, memory.trainer_sleep = all) cannot be opened: use "
                 "gather or alias");
    }
}

}  // namespace tandem::trainer
