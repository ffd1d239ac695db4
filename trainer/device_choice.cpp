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
    const auto only_none = [&](const char* key, const std::string& value) {
        if (value != "none") s.refuse(key, fmt::format("'{}' is for run.device = cpu only", value));
    };
    only_none("memory.offload", c.memory.offload);
    only_none("memory.trainer_sleep", c.memory.trainer_sleep);
    if (c.memory.engine_sleep == "all")
        s.refuse("memory.engine_sleep", "on a GPU only the cache can sleep: use kv_cache");
}

}  // namespace tandem::trainer
