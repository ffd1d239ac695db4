// Which sets of kernels this machine runs, of those compiled for x86-64-v3 (AVX2), v4 (AVX-512) and v4 with
// AVX512-BF16; none above TANDEM_INSTRUCTIONS, where it is set.
#pragma once

namespace tandem::ops::detail {

// Throw InvalidArgument where TANDEM_INSTRUCTIONS names no set.
bool runs_v3();
bool runs_v4();
// v4 and VBMI2: bytes and words compressed in registers.
bool runs_vbmi2();
bool runs_avx512_bf16();

}  // namespace tandem::ops::detail
