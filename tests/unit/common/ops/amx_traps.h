// The machine code of AMX's kernels on a CPU that has AVX512-BF16 but no AMX: the CPU refuses each instruction on tiles,
// and a handler does it as amx.h's plain C++ has it.
#pragma once

namespace tandem::testing {

// Installs the handler where the CPU is such a one; says whether it is. A CPU that has AMX is never asked.
bool traps_amx();

}  // namespace tandem::testing
