// The primitives of attention over pairs as functions of arrays of 16, from the hardware and from plain C++.
#pragma once

#include <cstdint>

namespace tandem::testing {

struct PairsProbe {
    void (*dot)(const std::uint32_t* a, const std::uint32_t* b, const float* sum, float* to);
    void (*narrow)(const float* first, const float* second, std::uint32_t* to);
    void (*power_of_two)(const float* x, float* to);
    // By lane: the larger, a where a is greater (else b), a * b + a.
    void (*compare)(const float* a, const float* b, float* larger, float* chosen, float* fused);
    void (*load)(const std::uint32_t* from, std::uint16_t lanes, std::uint32_t* to);
};

extern const PairsProbe kPairsHardware;  // where runs_avx512_bf16()
extern const PairsProbe kPairsEmulated;

}  // namespace tandem::testing
