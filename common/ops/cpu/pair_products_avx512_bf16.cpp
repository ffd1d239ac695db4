// The kernel of pair_products.h for AVX512-BF16. Compiled with its own -march; see pair_products.inl for the rules.
#include "common/ops/cpu/attention/pairs.h"
#include "common/ops/cpu/instruction_sets.h"
#include "common/ops/cpu/pair_products.h"

namespace tandem::ops::detail {
namespace {

#define TANDEM_DOT_PAIRS
#include "common/ops/cpu/pair_products.inl"

}  // namespace

const PairProducts kPairProducts{runs_avx512_bf16, multiply<std::uint16_t, std::uint32_t>};

}  // namespace tandem::ops::detail
