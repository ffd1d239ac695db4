// Which sets of kernels this machine runs, of those compiled for x86-64-v3 (AVX2), v4 (AVX-512), v4 with AVX512-BF16
// and that with AMX; none above TANDEM_INSTRUCTIONS, where it is set.
#pragma once

namespace tandem::ops::detail {

// Throw InvalidArgument where TANDEM_INSTRUCTIONS names no set, or amx on a machine that lacks it.
bool runs_v3();
bool runs_v4();
// v4 and VBMI2: bytes and words compressed in registers.
bool runs_vbmi2();
bool runs_avx512_bf16();
// Only where TANDEM_INSTRUCTIONS is amx: it was never seen on a machine that has it.
bool runs_amx();

}  // namespace tandem::ops::detail
