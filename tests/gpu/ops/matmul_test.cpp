// Matrix products in every form, over sizes that no vector or tile divides.
#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

using ops::Transpose;

struct Sizes {
    std::int64_t m, n, k;
};
const std::vector<Sizes> kSizes = {{0, 4, 4},   {4, 0, 4}, {3, 5, 0},     {1, 1, 1},
                                   {1, 64, 48}, {5, 7, 9}, {33, 130, 65}, {200, 64, 128}};

Shape stored(std::int64_t rows, std::int64_t columns, bool transposed) {
    return transposed ? Shape{columns, rows} : Shape{rows, columns};
}

TEST(GpuMatmul, EveryForm) {
    for (const auto& [m, n, k] : kSizes) {
        for (const int form : {0, 1, 2, 3}) {
            const bool ta = form & 1, tb = form & 2;
            const auto a = ta ? Transpose::yes : Transpose::no, b = tb ? Transpose::yes : Transpose::no;
            for (const bool accumulate : {false, true}) {
                SCOPED_TRACE(fmt::format("{}×{}×{}, form {}, accumulate {}", m, n, k, form, accumulate));
                for (const bool fixed : {false, true}) {  // c in float32 whatever a and b are
                    compare({{random(stored(m, k, ta), 1)},
                             {random(stored(k, n, tb), 2)},
                             {random({m, n}, 3), fixed}},
                            BOTH(matmul(s, t[0], a, t[1], b, t[2], accumulate)));
                }
            }
        }
    }
}

TEST(GpuMatmul, Linear) {
    for (const auto& [m, n, k] : kSizes) {
        SCOPED_TRACE(fmt::format("{}×{}×{}", m, n, k));
        const Tensor x = random({m, k}, 1), weight = random({n, k}, 2), dy = random({m, n}, 3);
        compare({{x}, {weight}, {zeros({m, n})}}, BOTH(linear(s, t[0], t[1], Tensor(), t[2])));
        compare({{dy}, {weight}, {random({m, k}, 4)}},
                BOTH(linear_backward_input(s, t[0], t[1], t[2], true)));
        for (const bool accumulate : {false, true}) {
            compare({{dy}, {x}, {random({n, k}, 5), true}},
                    BOTH(linear_backward_weight(s, t[0], t[1], t[2], accumulate)));
        }
        for (const bool fixed : {false, true}) {
            compare({{x}, {weight}, {random({n}, 6)}, {zeros({m, n}), fixed}},
                    BOTH(linear(s, t[0], t[1], t[2], t[3])));
        }
    }
}

// Within a class of m (ops::shared::rows_class) a row's values are the same whatever is in the call.
TEST(GpuMatmul, ARowKnowsNoNeighbours) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const auto& [few, many] : std::vector<std::pair<std::int64_t, std::int64_t>>{
                 {1, 8}, {7, 16}, {1, 97}, {60, 128}, {130, 250}, {260, 512}, {513, 1000}}) {
            const Tensor x = to_tested(with_dtype(random({many, 256}, 1), dtype));
            const Tensor weight = to_tested(with_dtype(random({192, 256}, 2), dtype));
            Tensor all = to_tested(with_dtype(zeros({many, 192}), dtype));
            Tensor part = to_tested(with_dtype(zeros({few, 192}), dtype));
            tested::linear(tested_stream(), x, weight, Tensor(), all);
            tested::linear(tested_stream(), x.rows(many - few, few), weight, Tensor(), part);
            expect_close(to_host(part), to_host(all).rows(many - few, few), 0.0);
        }
    }
}

TEST(GpuMatmul, WrongArgumentsAreNamedAtTheCall) {
    const Tensor a = to_tested(random({2, 3}, 1)), b = to_tested(random({4, 5}, 2));
    Tensor c = to_tested(zeros({2, 5}));
    EXPECT_THROW(tested::matmul(tested_stream(), a, Transpose::no, b, Transpose::no, c, false),
                 InvalidArgument);
    const Tensor on_host = random({3, 5}, 3);
    EXPECT_THROW(tested::matmul(tested_stream(), a, Transpose::no, on_host, Transpose::no, c, false),
                 InvalidArgument);
}

}  // namespace
}  // namespace tandem::tests
