// The kernel of products by pairs from plain C++, beside that of the hardware.
#pragma once

#include "common/ops/cpu/pair_products.h"

namespace tandem::testing {

extern const ops::detail::PairProducts kPairProductsEmulated;

}  // namespace tandem::testing
