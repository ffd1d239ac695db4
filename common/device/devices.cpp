// The table of devices: the CPU, and the real or the emulated GPUs.
#include "common/device/devices.h"

#include <unistd.h>

#include <charconv>

#include "common/device/cuda/devices.h"
#include "common/device/cuda/memory.h"
#include "common/device/emulated.h"
#include "common/device/emulated/memory.h"
#include "common/device/memory.h"

namespace tandem {
namespace {

std::uint64_t host_bytes() {
    return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// The emulated ones hide the real ones.
int gpu_count() {
    return emulated::gpu_count() > 0 ? emulated::gpu_count() : static_cast<int>(cuda::gpus().usable.size());
}

}  // namespace

std::vector<Device> available_devices() {
    std::vector<Device> result{Device{}};
    for (int i = 0; i < gpu_count(); ++i) result.push_back({DeviceType::cuda, i});
    return result;
}

void require_device(Device device) {
    if (device.type == DeviceType::cpu) return;
    const int count = gpu_count();
    if (device.index >= 0 && device.index < count) return;
    const std::string& reason = emulated::gpu_count() > 0 ? "" : cuda::gpus().reason;
    const std::string known = count == 0   ? "there is no GPU to use"
                              : count == 1 ? "the only one is cuda:0"
                                           : fmt::format("there are cuda:0 to cuda:{}", count - 1);
    throw DeviceUnavailable(fmt::format("{} was asked for and {}{}{}", to_string(device), known,
                                        reason.empty() ? "" : ": ", reason));
}

bool is_emulated(Device device) {
    return device.type == DeviceType::cuda && device.index < emulated::gpu_count();
}

DeviceInfo device_info(Device device) {
    if (device.type == DeviceType::cpu) return {"CPU", host_bytes(), 0, false};
    require_device(device);
    if (!is_emulated(device)) return cuda::gpus().usable[static_cast<std::size_t>(device.index)];
    return {fmt::format("emulated GPU {} (a test device, no GPU)", device.index), emulated::total_bytes(), 0,
            true};
}

Device device_from_name(const std::string& name) {
    if (name == "cpu") return {};
    if (name == "cuda") return {DeviceType::cuda, 0};
    constexpr std::string_view kPrefix = "cuda:";
    int index = 0;
    const char* end = name.data() + name.size();
    if (name.starts_with(kPrefix)) {
        const auto [at, error] = std::from_chars(name.data() + kPrefix.size(), end, index);
        if (error == std::errc() && at == end && index >= 0) return {DeviceType::cuda, index};
    }
    throw InvalidArgument(fmt::format("unknown device '{}'; known: cpu, cuda (the first GPU), cuda:N", name));
}

MemoryPool& device_pool(Device device) {
    if (device.type == DeviceType::cpu) return cpu_pool();
    require_device(device);
    return is_emulated(device) ? emulated::pool(device) : cuda::pool(device);
}

MemoryPool& pinned_pool() {
    if (emulated::gpu_count() > 0 || cuda::gpus().usable.empty()) return cpu_pool();
    return cuda::pinned_pool();
}

}  // namespace tandem
