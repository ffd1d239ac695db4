// Delta kernels for AVX-512 with VBMI2. Compiled with its own -march; see attention/kernels.inl for the rules.
#include <immintrin.h>

#include "common/ops/cpu/delta_kernels.h"

namespace tandem::ops::detail {
namespace {

#include "common/ops/cpu/delta_avx512.inl"

#include "common/ops/cpu/delta_kernels.inl"

}  // namespace

const DeltaKernels kDeltaVbmi2{pack<std::uint16_t>,   pack<std::uint32_t>, unpack<std::uint16_t>,
                               unpack<std::uint32_t>, positions,           gaps};

}  // namespace tandem::ops::detail
