// XXH3-128 checksums and their text form.
#include <charconv>
#include <cstring>

#include "common/error.h"
#include "common/ops/batched_copy.h"
#include "common/ops/cpu/copy_kernels.h"

namespace tandem::ops {

std::string to_hex(const Checksum& checksum) {
    return fmt::format("{:016x}{:016x}", checksum.high, checksum.low);
}

Checksum checksum_from_hex(const std::string& text) {
    const auto parse = [&](std::size_t at) {
        std::uint64_t value = 0;
        const char* begin = text.data() + at;
        const auto result = std::from_chars(begin, begin + 16, value, 16);
        if (result.ec != std::errc{} || result.ptr != begin + 16) {
            throw ProtocolError(
                fmt::format("'{}' is not a checksum of 32 hexadecimal digits", text.substr(0, 64)));
        }
        return value;
    };
    if (text.size() != 32) {
        throw ProtocolError(
            fmt::format("'{}' is not a checksum of 32 hexadecimal digits", text.substr(0, 64)));
    }
    return {.low = parse(16), .high = parse(0)};
}

Checksum checksum(ConstSpan bytes) {
    const detail::CopyKernels& kernels = detail::copy_kernels();
    detail::HashState state;
    Checksum result;
    kernels.hash_begin(state);
    const std::size_t whole = bytes.bytes / 64 * 64;
    if (whole > 0) kernels.hash_lines(state, {bytes.data, 0, nullptr, 0, 1, whole});
    kernels.hash_update(state, bytes.data + whole, bytes.bytes - whole);
    kernels.hash_end(state, result.low, result.high);
    return result;
}

Checksum combine(std::span<const Checksum> parts) {
    static_assert(sizeof(Checksum) == 16);
    return checksum({reinterpret_cast<const std::byte*>(parts.data()), parts.size_bytes()});
}

}  // namespace tandem::ops
