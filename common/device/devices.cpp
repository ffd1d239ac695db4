// The CPU, and the GPUs of the kind that serves this process.
#include "common/device/devices.h"

#include <unistd.h>

#include <charconv>

#include "common/device/device_backend.h"
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

// Why the device cannot be used; empty: it can.
std::string refusal(Device device) {
    const detail::Gpus& gpus = detail::gpu_backend().gpus();
    const int count = static_cast<int>(gpus.all.size());
    if (count == 0) return "no GPU can be used: " + gpus.reason;
    if (device.index >= 0 && device.index < count)
        return gpus.all[static_cast<std::size_t>(device.index)].refusal;
    return count == 1 ? "the only GPU is cuda:0" : fmt::format("there are cuda:0 to cuda:{}", count - 1);
}

}  // namespace

std::vector<Device> available_devices() {
    std::vector<Device> result{Device{}};
    const int count = static_cast<int>(detail::gpu_backend().gpus().all.size());
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

DeviceInfo device_info(Device device) {
    if (device.type == DeviceType::cpu) return {"CPU", host_bytes(), 0, "", ""};
    require_device(device);
    return detail::gpu_backend().gpus().all[static_cast<std::size_t>(device.index)].info;
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
    throw BadInput(fmt::format("unknown device '{}'; known: cpu, cuda (the first GPU), cuda:N", name));
}

MemoryPool& device_pool(Device device) {
    if (device.type == DeviceType::cpu) return cpu_pool();
    require_device(device);
    return detail::gpu_backend().pool(device);
}

MemoryPool& pinned_pool() {
    return detail::gpu_backend().pinned_pool();
}

void trim_device_pool(Device device) {
    if (device.type == DeviceType::cpu) {
        trim_cpu_pool();
        return;
    }
    require_device(device);
    detail::gpu_backend().trim_pool(device);
}

std::uint64_t free_bytes(Device device) {
    if (device.type == DeviceType::cpu) return available_host_bytes();
    require_device(device);
    return detail::gpu_backend().free_bytes(device);
}

bool can_access_peer(Device from, Device memory) {
    require_device(from);
    require_device(memory);
    if (from == memory || from.type == DeviceType::cpu || memory.type == DeviceType::cpu)
        return from == memory;
    return detail::gpu_backend().can_access_peer(from, memory);
}

void enable_peer_access(Device device, Device memory) {
    require_device(device);
    require_device(memory);
    if (device == memory) return;
    detail::gpu_backend().enable_peer_access(device, memory);
}

}  // namespace tandem
