// The inner loops of delta_encode, compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::ops::detail {

// What a comparison reads and writes.
struct DeltaBlock {
    const std::byte* fresh;
    std::byte* base;    // becomes `fresh`; lines without a change are not written
    std::size_t count;  // elements
    std::byte* bitmap;  // a bit for each, rounded up to bytes
    std::byte* values;  // the changed elements; up to kValuesSlack bytes behind them are scribbled on
};
inline constexpr std::size_t kValuesSlack = 64;

struct DeltaKernels {
    // Elements of 2 and of 4 bytes. Return how many differ.
    std::size_t (*compare2)(const DeltaBlock&);
    std::size_t (*compare4)(const DeltaBlock&);
};

const DeltaKernels& delta_kernels();

extern const DeltaKernels kDeltaBaseline;
extern const DeltaKernels kDeltaAvx2;
extern const DeltaKernels kDeltaAvx512;

}  // namespace tandem::ops::detail
