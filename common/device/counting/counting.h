// What the rest of common/device asks on a thread that only counts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/device/counting.h"
#include "common/device/device_backend.h"
#include "common/device/tier.h"

namespace tandem::detail::counting {

MemoryPool& pool(Device device);
std::shared_ptr<StreamBackend> make_stream(Device device, std::string name, bool is_inline);
std::unique_ptr<Tier> make_tier(std::uint64_t bytes);
const DeviceBackend& gpu_backend();

}  // namespace tandem::detail::counting
