// The inner loops of delta_encode and delta_apply, compiled once per instruction set; those ending in 2 or 4 are for elements
// of so many bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::ops::detail {

// `pack`, `positions` and `gaps` may overwrite so many bytes behind their results.
inline constexpr std::size_t kDeltaSlack = 64;

struct DeltaKernels {
    // The elements that a bitmap marks, one after the other; what it marks may be read up to 64 elements on.
    using Pack = void (*)(const std::byte* fresh, const std::byte* bitmap, std::size_t count,
                          std::byte* values);
    Pack pack2, pack4;
    // The reverse: values over the elements that `words` times 64 bits mark. Stops where less than 64 values are
    // `left`: it may read as many whatever is marked.
    struct Unpacked {
        std::size_t words, values;
    };
    using Unpack = Unpacked (*)(const std::byte* bitmap, std::size_t words, const std::byte* values,
                                std::size_t left, std::byte* to);
    Unpack unpack2, unpack4;
    // The numbers of the elements that a bitmap marks; returns how many there are.
    std::size_t (*positions)(const std::byte* bitmap, std::size_t count, std::uint16_t* to);
    // The gaps, as delta.h has them, between `count` rising positions, one at least: before each but the first.
    // Returns their bytes; may read kDeltaSlack bytes behind the positions.
    std::size_t (*gaps)(const std::uint16_t* positions, std::size_t count, std::byte* to);
};

const DeltaKernels& delta_kernels();

extern const DeltaKernels kDeltaBaseline;
extern const DeltaKernels kDeltaAvx2;
extern const DeltaKernels kDeltaAvx512;
extern const DeltaKernels kDeltaVbmi2;  // AVX-512 that compresses bytes and words, too

}  // namespace tandem::ops::detail
