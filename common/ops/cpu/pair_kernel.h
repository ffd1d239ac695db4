// A product by our own kernels (pair_products.h), as one of product_library.h.
#pragma once

#include "common/ops/cpu/pair_products.h"
#include "common/ops/cpu/product_library.h"

namespace tandem::ops::detail {

struct PairPlan {
    std::int64_t columns = 0;  // of a block of the right side; 0: ours are not used
    std::int64_t chain = 0;    // numbers of k
};
inline constexpr int kOneChain = 1 << 30;  // of any k

class PairKernel final : public ProductKernel {
  public:
    // Of up to kMostPairRows rows.
    PairKernel(const PairProducts& products, std::int64_t rows, const RightSide& side, const PairPlan& plan)
        : products_(products), rows_(rows), side_(side), plan_(plan) {}
    void run(const std::byte* a, const std::byte* b, std::byte* c) override {
        run_to(rows_, a, b, {c, side_.n, DType::float32, nullptr});
    }
    bool run_to(std::int64_t rows, const std::byte* a, const std::byte* b, const Destination& to) override {
        const bool wide = to.dtype == DType::float32;
        products_.multiply({.rows = rows,
                            .n = side_.n,
                            .k = side_.k,
                            .columns = plan_.columns,
                            .chain = plan_.chain,
                            .a = a,
                            .b = b,
                            .bias = to.bias,
                            .c = wide ? reinterpret_cast<float*>(to.c) : nullptr,
                            .rounded_c = wide ? nullptr : reinterpret_cast<std::uint16_t*>(to.c),
                            .c_row = to.stride,
                            .next = reinterpret_cast<const char*>(to.next)});
        return true;
    }

  private:
    const PairProducts& products_;
    const std::int64_t rows_;
    const RightSide side_;
    const PairPlan plan_;
};

}  // namespace tandem::ops::detail
