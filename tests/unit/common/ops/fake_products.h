// Libraries that multiply matrices in orders of their own: one that keeps the rule (a row's bits depend on
// its row of a and on b alone), and one for each way in which a real one was seen to break it.
#pragma once

#include <vector>

#include "common/ops/cpu/product_library.h"

namespace tandem::testing {

struct FakeProducts {
    const char* name;
    ops::detail::ProductLibrary library;
    bool keeps_the_rule;
    // For a right-hand side of 20 columns and 96 rows:
    std::int64_t base;
    std::vector<std::int64_t> sizes_that_agree;
    bool has_bfloat16 = true;
};

const std::vector<FakeProducts>& fake_products();

}  // namespace tandem::testing
