// One pass over the bits, a block at a time: its largest magnitude tells whether to look closer.
#include "common/ops/finite.h"

#include <algorithm>

#include "common/ops/cpu/simd.h"
#include "common/ops/shared/magnitude.h"

namespace tandem::ops::cpu {
namespace {

constexpr std::int64_t kFiniteBlock = 4096;

TANDEM_CLONES std::uint32_t largest_magnitude4(const std::uint32_t* bits, std::int64_t count) {
    std::int32_t most = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto here = static_cast<std::int32_t>(bits[i] & 0x7fffffffu);
        most = here > most ? here : most;
    }
    return static_cast<std::uint32_t>(most);
}

TANDEM_CLONES std::uint32_t largest_magnitude2(const std::uint16_t* bits, std::int64_t count) {
    std::int16_t most = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto here = static_cast<std::int16_t>(bits[i] & 0x7fff);
        most = here > most ? here : most;
    }
    return static_cast<std::uint32_t>(most);
}

TANDEM_CLONES std::uint32_t largest_magnitude1(const std::uint8_t* bits, std::int64_t count) {
    std::uint8_t most = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto here = static_cast<std::uint8_t>(bits[i] & 0x7f);
        most = here > most ? here : most;
    }
    return most;
}

template <typename Bits>
NonFinite find_in(const Tensor& values, std::uint32_t (*largest)(const Bits*, std::int64_t)) {
    const auto* bits = reinterpret_cast<const Bits*>(values.raw());
    const std::uint32_t infinity = shared::infinity_of(values.dtype());
    NonFinite found;
    for (std::int64_t at = 0; at < values.numel(); at += kFiniteBlock) {
        const std::int64_t end = std::min(at + kFiniteBlock, values.numel());
        if (largest(bits + at, end - at) < infinity) continue;
        for (std::int64_t i = at; i < end; ++i) {
            if (largest(bits + i, 1) < infinity) continue;
            if (found.count++ == 0) found.first = i;
        }
    }
    return found;
}

}  // namespace

NonFinite find_non_finite(Stream& stream, const Tensor& values) {
    stream.synchronize();
    switch (dtype_size(values.dtype())) {
        case 4:
            return find_in<std::uint32_t>(values, largest_magnitude4);
        case 2:
            return find_in<std::uint16_t>(values, largest_magnitude2);
        default:
            return find_in<std::uint8_t>(values, largest_magnitude1);
    }
}

}  // namespace tandem::ops::cpu
