// Kernels of pair_products.h for AVX2 and FMA. Compiled with its own -march; see pair_products.inl for the rules.
#include <immintrin.h>

#include "common/ops/cpu/instruction_sets.h"
#include "common/ops/cpu/pair_products.h"

namespace tandem::ops::detail {
namespace {

#define TANDEM_LANES static inline __attribute__((always_inline))

using Floats = float __attribute__((vector_size(32)));
using FloatsUnaligned __attribute__((vector_size(32), aligned(4), may_alias)) = float;
using Words = std::uint32_t __attribute__((vector_size(32)));
using WordsUnaligned __attribute__((vector_size(32), aligned(2), may_alias)) = std::uint32_t;
constexpr int kFloats = 8;

TANDEM_LANES Floats load_floats(const float* from) {
    return *reinterpret_cast<const FloatsUnaligned*>(from);
}
TANDEM_LANES void store_floats(float* to, const Floats& value) {
    *reinterpret_cast<FloatsUnaligned*>(to) = value;
}
TANDEM_LANES Words load_pairs(const void* from) {
    return *reinterpret_cast<const WordsUnaligned*>(from);
}
TANDEM_LANES Floats all_lanes_float(const float* from) {
    const float x = *from;
    return Floats{x, x, x, x, x, x, x, x};
}
TANDEM_LANES Floats fused_floats(const Floats& a, const Floats& b, const Floats& c) {
    return reinterpret_cast<Floats>(_mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b),
                                                    reinterpret_cast<__m256>(c)));
}

#include "common/ops/cpu/pair_products.inl"

}  // namespace

const PairProducts kWidenedProductsAvx2{runs_v3, multiply<float, std::uint32_t>};
const PairProducts kFloatProducts{runs_v3, multiply<float, float>};

}  // namespace tandem::ops::detail
