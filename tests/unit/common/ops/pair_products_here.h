// The kernels of products by pairs from plain C++, beside those of the hardware.
#pragma once

#include "common/ops/cpu/pair_products.h"

namespace tandem::testing {

extern const ops::detail::PairProducts kPairProductsEmulated;
extern const ops::detail::PairProducts kWidenedProductsEmulated;

}  // namespace tandem::testing
