// The kernel of products by pairs, compiled without AVX512-BF16.
#include "common/ops/cpu/attention/pairs.h"
#include "tests/unit/common/ops/pair_products_here.h"

namespace tandem::testing {
namespace {

using namespace ops::detail;
#include "common/ops/cpu/pair_products.inl"

}  // namespace

const ops::detail::PairProducts kPairProductsEmulated{nullptr, multiply};

}  // namespace tandem::testing
