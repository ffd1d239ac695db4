// Attention for a Hopper with one barrier, wait, fence or commit left out: the rig reports each.
#include <gmock/gmock.h>

#include <cmath>

#include "common/error.h"
#include "tests/gpu/ops/rig.h"
#include "tests/support/kernel_mutations.h"

namespace tandem::tests {
namespace {

using fibers::LeftOut;

// Not among them: fences of products, which the rig asks for only where sums have changed, and what is there for
// speed (turns of warpgroups) or for what the host does not have (where parts are parked).
constexpr LeftOut kAll[] = {LeftOut::block_barrier,     LeftOut::mbarrier_wait,  LeftOut::mbarrier_arrival,
                            LeftOut::proxy_fence,       LeftOut::product_commit, LeftOut::product_wait,
                            LeftOut::last_product_group};

Tensor in_bfloat16(Shape shape, std::uint64_t seed) {
    return with_dtype(random(std::move(shape), seed), DType::bfloat16);
}

// Sums that were looked at before they were there are NaN.
void expect_numbers(const Tensor& result) {
    for (const float value : to_host(with_dtype(result, DType::float32)).values<float>()) {
        if (std::isnan(value)) throw Error("a NaN among the results");
    }
}

class HopperWithout : public ::testing::TestWithParam<LeftOut> {
  protected:
    static void expect_none_survives(const std::function<void()>& run) {
        const fibers::Survivors result = fibers::leave_out(GetParam(), run);
        EXPECT_GT(result.places, 0u);
        EXPECT_THAT(result.survived, ::testing::IsEmpty());
    }
};

// Turns of both warpgroups, tiles beyond the segment, and a tile of queries that sees no key.
TEST_P(HopperWithout, AttentionForward) {
    const std::int64_t blind = 140, rows = 130 + blind;
    const Tensor q = in_bfloat16({rows, 1, 128}, 1), k = in_bfloat16({500, 1, 128}, 2);
    const Tensor v = in_bfloat16({500, 1, 128}, 3);
    expect_none_survives([&] {
        Tensor out = in_bfloat16({rows, 1, 128}, 4), lse = zeros({1, rows});
        tested::attention_forward(tested_stream(), q, k, v,
                                  {{0, 130, 0, 500, false}, {130, blind, 70, 5, true}}, 0.1f, out, lse, {});
        expect_numbers(out);
    });
}

TEST_P(HopperWithout, AttentionForwardOfManyKeys) {
    const Tensor q = in_bfloat16({1, 1, 64}, 1), k = in_bfloat16({2100, 1, 64}, 2);
    const Tensor v = in_bfloat16({2100, 1, 64}, 3);
    expect_none_survives([&] {
        Tensor out = in_bfloat16({1, 1, 64}, 4), lse = zeros({1, 1});
        tested::attention_forward(tested_stream(), q, k, v, {{0, 1, 0, 2100, true}}, 0.1f, out, lse, {});
        expect_numbers(out);
    });
}

TEST_P(HopperWithout, AttentionBackward) {
    const std::int64_t blind = 140, rows = 270 + blind;
    const Tensor q = in_bfloat16({rows, 1, 128}, 1), dout = in_bfloat16({rows, 1, 128}, 2);
    const Tensor k = in_bfloat16({340, 1, 128}, 3), v = in_bfloat16({340, 1, 128}, 4);
    const Tensor scalars = random({1, rows}, 5);
    expect_none_survives([&] {
        Tensor dq = zeros(q.shape()), dk = zeros(k.shape()), dv = zeros(k.shape());
        tested::attention_backward(tested_stream(), dout, q, k, v, scalars, scalars,
                                   {{0, 270, 0, 330, false}, {270, blind, 330, 5, true}}, 0.1f, dq, dk, dv,
                                   {});
        for (const Tensor& gradient : {dq, dk, dv}) expect_numbers(gradient);
    });
}

INSTANTIATE_TEST_SUITE_P(All, HopperWithout, ::testing::ValuesIn(kAll));

}  // namespace
}  // namespace tandem::tests
