// Which sets of kernels this machine runs: the ones compiled for x86-64-v3 (AVX2), v4 (AVX-512) and
// v4 with AVX512-BF16.
#pragma once

namespace tandem::ops::detail {

// Clang 14 does not know the levels by name.
inline bool runs_v3() {
#if !defined(__x86_64__)
    return false;
#elif defined(__clang__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#else
    return __builtin_cpu_supports("x86-64-v3");
#endif
}

inline bool runs_v4() {
#if !defined(__x86_64__)
    return false;
#elif defined(__clang__)
    return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#else
    return __builtin_cpu_supports("x86-64-v4");
#endif
}

// Beyond v4: bytes and words compressed in registers.
inline bool runs_vbmi2() {
#if defined(__x86_64__)
    return runs_v4() && __builtin_cpu_supports("avx512vbmi2");
#else
    return false;
#endif
}

inline bool runs_avx512_bf16() {
#if defined(__x86_64__)
    return runs_v4() && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

}  // namespace tandem::ops::detail
