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

std::uint64_t available_host_bytes() {
    return static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) *
           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

const std::vector<cuda::Gpu>& real_gpus() {
    return cuda::gpus().all;
}

// Why the device cannot be used; empty: it can. Emulated GPUs hide the real ones.
std::string refusal(Device device) {
    const bool emulated = emulated::gpu_count() > 0;
    const int count = emulated ? emulated::gpu_count() : static_cast<int>(real_gpus().size());
    if (count == 0) return "no GPU can be used: " + cuda::gpus().reason;
    if (device.index >= 0 && device.index < count)
        return emulated ? "" : real_gpus()[static_cast<std::size_t>(device.index)].refusal;
    return count == 1 ? "the only GPU is cuda:0" : fmt::format("there are cuda:0 to cuda:{}", count - 1);
}

}  // namespace

std::vector<Device> available_devices() {
    std::vector<Device> result{Device{}};
    const int count =
        emulated::gpu_count() > 0 ? emulated::gpu_count() : static_cast<int>(real_gpus().size());
    for (int i = 0; i < count; ++i) {
        if (refusal({DeviceType::cuda, i}).empty()) result.push_back({DeviceType::cuda, i});
    }
    return result;
}

void require_device(Device device) {
    if (device.type == DeviceType::cpu) return;
    if (const std::string why = refusal(device); !why.empty())
        throw DeviceUnavailable(fmt::format("{} was asked for, but {}", to_string(device), why));
}

bool is_emulated(Device device) {
    return device.type == DeviceType::cuda && device.index < emulated::gpu_count();
}

DeviceInfo device_info(Device device) {
    if (device.type == DeviceType::cpu) return {"CPU", host_bytes(), 0, false, ""};
    require_device(device);
    if (!is_emulated(device)) return real_gpus()[static_cast<std::size_t>(device.index)].info;
    return {fmt::format("emulated GPU {} (a test device, no GPU)", device.index), emulated::total_bytes(), 0,
            true, fmt::format("gpu {}", device.index)};
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
    const bool real = emulated::gpu_count() == 0 && !real_gpus().empty();
    if (!real && emulated::gpu_count() == 0) cuda::say_when_absent();
    return real ? cuda::pinned_pool() : cpu_pool();
}

void trim_device_pool(Device device) {
    if (device.type == DeviceType::cpu) {
        trim_cpu_pool();
        return;
    }
    require_device(device);
    if (!is_emulated(device)) cuda::trim_pool(device);
}

std::uint64_t free_bytes(Device device) {
    if (device.type == DeviceType::cpu) return available_host_bytes();
    require_device(device);
    return is_emulated(device) ? emulated::free_bytes(device) : cuda::free_bytes(device);
}

bool can_access_peer(Device from, Device memory) {
    require_device(from);
    require_device(memory);
    if (from == memory || from.type == DeviceType::cpu || memory.type == DeviceType::cpu)
        return from == memory;
    return is_emulated(from) || cuda::can_access_peer(from, memory);
}

}  // namespace tandem
