// Bytes of any device from and to the host, at once. For tests.
#pragma once

#include <cstring>
#include <vector>

#include "common/device/device.h"
#include "common/device/stream.h"

namespace tandem::test {

inline void upload(Device device, ConstSpan from, Span to) {
    if (device.type == DeviceType::cpu) {
        if (from.bytes > 0) std::memcpy(to.data, from.data, from.bytes);
        return;
    }
    Stream stream = Stream::make(device, "upload");
    copy(stream, from, to);
    stream.synchronize();
}

inline std::vector<std::byte> download(Device device, ConstSpan from) {
    if (device.type == DeviceType::cpu) return {from.data, from.data + from.bytes};
    std::vector<std::byte> bytes(from.bytes);
    Stream stream = Stream::make(device, "download");
    copy(stream, from, Span{bytes.data(), bytes.size()});
    stream.synchronize();
    return bytes;
}

}  // namespace tandem::test
