#include "common/ops/cpu/instruction_sets.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "common/error.h"

namespace tandem::ops::detail {
namespace {

enum InstructionSet : std::size_t { kBaseline, kV3, kV4, kAvx512Bf16 };
constexpr std::array<std::string_view, 4> kInstructionSets = {"baseline", "avx2", "avx512", "avx512_bf16"};

// Clang 14 does not know the levels by name.
bool cpu_has(InstructionSet set) {
#if !defined(__x86_64__)
    return set == kBaseline;
#else
    switch (set) {
        case kBaseline:
            return true;
        case kV3:
#if defined(__clang__)
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                   __builtin_cpu_supports("bmi2");
#else
            return __builtin_cpu_supports("x86-64-v3");
#endif
        case kV4:
#if defined(__clang__)
            return cpu_has(kV3) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl");
#else
            return __builtin_cpu_supports("x86-64-v4");
#endif
        case kAvx512Bf16:
            return cpu_has(kV4) && __builtin_cpu_supports("avx512bf16");
    }
    return false;
#endif
}

InstructionSet highest_wanted() {
    const char* named = std::getenv("TANDEM_INSTRUCTIONS");
    if (named == nullptr || *named == '\0') return kAvx512Bf16;
    const auto found = std::find(kInstructionSets.begin(), kInstructionSets.end(), named);
    require(found != kInstructionSets.end(),
            "TANDEM_INSTRUCTIONS={}: known are baseline, avx2, avx512, avx512_bf16", named);
    return static_cast<InstructionSet>(found - kInstructionSets.begin());
}

bool runs(InstructionSet set) {
    static const InstructionSet highest = highest_wanted();
    return set <= highest && cpu_has(set);
}

}  // namespace

bool runs_v3() {
    return runs(kV3);
}

bool runs_v4() {
    return runs(kV4);
}

bool runs_vbmi2() {
#if defined(__x86_64__)
    return runs(kV4) && __builtin_cpu_supports("avx512vbmi2");
#else
    return false;
#endif
}

bool runs_avx512_bf16() {
    return runs(kAvx512Bf16);
}

}  // namespace tandem::ops::detail
