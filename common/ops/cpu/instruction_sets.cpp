#include "common/ops/cpu/instruction_sets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "common/error.h"

namespace tandem::ops::detail {
namespace {

enum InstructionSet : std::size_t { kBaseline, kV3, kV4, kAvx512Bf16, kAmx };
constexpr std::array<std::string_view, 5> kInstructionSets = {"baseline", "avx2", "avx512", "avx512_bf16",
                                                              "amx"};

const char* missing_for_amx();  // null: nothing

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
        case kAmx:
            return missing_for_amx() == nullptr;
    }
    return false;
#endif
}

// What AMX's tiles of bfloat16 need and is not here. Linux gives a process their registers where it asks for them.
const char* find_missing_for_amx() {
#if !defined(__x86_64__)
    return "this is no x86-64";
#else
    constexpr unsigned kPalettes = 0x1d, kBf16 = 1U << 22, kTiles = 1U << 24;
    constexpr unsigned kTileState = 3U << 17;  // of XCR0: configuration and data
    constexpr int kTileData = 18;
    constexpr int kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM, unknown to headers before Linux 5.16
    if (!cpu_has(kAvx512Bf16)) return "the CPU has no AVX512-BF16";
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTiles) == 0) return "the CPU has no AMX-TILE";
    if ((d & kBf16) == 0) return "the CPU has no AMX-BF16";
    if (__get_cpuid_count(kPalettes, 0, &a, &b, &c, &d) == 0 || a == 0)
        return "the CPU, or its hypervisor, has no palette of tiles";
    asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    if ((a & kTileState) != kTileState) return "the kernel has not switched on the state of tiles (XCR0)";
    if (::syscall(SYS_arch_prctl, kRequest, kTileData) != 0)
        return "Linux refuses the registers of tiles (arch_prctl ARCH_REQ_XCOMP_PERM): older than 5.16, or "
               "a thread's signal stack is too small";
    return nullptr;
#endif
}

const char* missing_for_amx() {
    static const char* const missing = find_missing_for_amx();
    return missing;
}

InstructionSet highest_wanted() {
    const char* named = std::getenv("TANDEM_INSTRUCTIONS");
    // AMX was never seen to work: by its name only.
    if (named == nullptr || *named == '\0') return kAvx512Bf16;
    const auto found = std::find(kInstructionSets.begin(), kInstructionSets.end(), named);
    require(found != kInstructionSets.end(),
            "TANDEM_INSTRUCTIONS={}: known are baseline, avx2, avx512, avx512_bf16, amx", named);
    const auto set = static_cast<InstructionSet>(found - kInstructionSets.begin());
    require(set != kAmx || cpu_has(kAmx), "TANDEM_INSTRUCTIONS=amx: {}; name a lower set, or none",
            missing_for_amx());
    return set;
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

bool runs_amx() {
    return runs(kAmx);
}

}  // namespace tandem::ops::detail
