// The kernel of pair_products.h for AVX-512. Compiled with its own -march; see pair_products.inl for the rules.
#include "common/ops/cpu/attention/pairs.h"
#include "common/ops/cpu/instruction_sets.h"
#include "common/ops/cpu/pair_products.h"

namespace tandem::ops::detail {
namespace {

#include "common/ops/cpu/pair_products.inl"

}  // namespace

const PairProducts kWidenedProducts{runs_v4, multiply<float, std::uint32_t>};

}  // namespace tandem::ops::detail
