// The inner loops of delta_encode, compiled once per instruction set; those ending in 2 or 4 are for elements
// of so many bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::ops::detail {

// `pack` and `positions` may overwrite so many bytes behind their results.
inline constexpr std::size_t kDeltaSlack = 64;

struct DeltaKernels {
    // Bits of the elements that differ, up to a whole byte. Returns how many there are.
    using Compare = std::size_t (*)(const std::byte* fresh, const std::byte* base, std::size_t count,
                                    std::byte* bitmap);
    // The elements that a bitmap marks, one after the other; what it marks may be read up to 64 elements on.
    using Pack = void (*)(const std::byte* fresh, const std::byte* bitmap, std::size_t count,
                          std::byte* values);
    Compare compare2, compare4;
    Pack pack2, pack4;
    // Their numbers; returns how many there are.
    std::size_t (*positions)(const std::byte* bitmap, std::size_t count, std::uint16_t* to);
};

const DeltaKernels& delta_kernels();

extern const DeltaKernels kDeltaBaseline;
extern const DeltaKernels kDeltaAvx2;
extern const DeltaKernels kDeltaAvx512;

}  // namespace tandem::ops::detail
