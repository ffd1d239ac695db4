// The kernels of products by pairs, compiled without AVX-512.
#include "common/ops/cpu/attention/pairs.h"
#include "tests/unit/common/ops/pair_products_here.h"

namespace tandem::testing {
namespace {

using namespace ops::detail;
#define TANDEM_DOT_PAIRS
#include "common/ops/cpu/pair_products.inl"

}  // namespace

const ops::detail::PairProducts kPairProductsEmulated{nullptr, multiply<std::uint16_t, std::uint32_t>};
const ops::detail::PairProducts kWidenedProductsEmulated{nullptr, multiply<float, std::uint32_t>};

}  // namespace tandem::testing
