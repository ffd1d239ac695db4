// Where memory lives and work runs.
#pragma once

#include <cstddef>
#include <string>

namespace tandem {

enum class DeviceType { cpu, cuda };

struct Device {
    DeviceType type = DeviceType::cpu;
    int index = 0;
    friend bool operator==(const Device&, const Device&) = default;
};

inline std::string to_string(Device device) {
    return device.type == DeviceType::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

// A borrowed range of memory on a device. Cheap to copy; never owns.
struct Span {
    std::byte* data = nullptr;
    std::size_t bytes = 0;

    Span subspan(std::size_t offset, std::size_t length) const { return {data + offset, length}; }
};

struct ConstSpan {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;

    ConstSpan() = default;
    ConstSpan(const std::byte* data_in, std::size_t bytes_in) : data(data_in), bytes(bytes_in) {}
    ConstSpan(Span span)
        : data(span.data), bytes(span.bytes) {}  // NOLINT: a view converts to a read-only view
    ConstSpan subspan(std::size_t offset, std::size_t length) const { return {data + offset, length}; }
};

}  // namespace tandem
