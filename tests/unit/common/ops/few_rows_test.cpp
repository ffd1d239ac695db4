// The kernel for a decode step's products, on the host: every number of rows, sizes that no tile divides.
#include "common/ops/cuda/few_rows.cuh"

#include <tuple>

#include "common/ops/shared/gemm_layout.h"
#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

Tensor bfloat16_of(Shape shape, std::uint64_t seed) {
    return with_dtype(random(std::move(shape), seed), DType::bfloat16);
}

Tensor few_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, DType dtype) {
    Tensor y = with_dtype(zeros({x.dim(0), weight.dim(0)}), dtype);
    Tensor there = to_tested(y);
    tested::linear_few_rows(tested_stream(), to_tested(x), to_tested(weight),
                            bias.defined() ? to_tested(bias) : Tensor(), there);
    return to_host(there);
}

Tensor in_float64(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    const std::vector<double> a = values_of(x), b = values_of(weight),
                              added = bias.defined() ? values_of(bias) : std::vector<double>(b.size());
    const std::int64_t rows = x.dim(0), outputs = weight.dim(0), terms = x.dim(1);
    Tensor y = zeros({rows, outputs});
    for (std::int64_t i = 0; i < rows * outputs; ++i) {
        double sum = added[static_cast<std::size_t>(i % outputs)];
        for (std::int64_t t = 0; t < terms; ++t)
            sum += a[static_cast<std::size_t>(i / outputs * terms + t)] *
                   b[static_cast<std::size_t>(i % outputs * terms + t)];
        y.values<float>()[static_cast<std::size_t>(i)] = static_cast<float>(sum);
    }
    return y;
}

TEST(FewRows, AreTheProduct) {
    for (const auto& [rows, outputs, terms] : std::vector<std::tuple<int, int, int>>{{1, 1, 8},
                                                                                     {1, 40, 72},
                                                                                     {7, 17, 200},
                                                                                     {8, 16, 64},
                                                                                     {9, 33, 576},
                                                                                     {20, 70, 1000},
                                                                                     {33, 31, 520},
                                                                                     {70, 20, 136},
                                                                                     {40, 2050, 8},
                                                                                     {3, 6000, 24},
                                                                                     {128, 2200, 16}}) {
        SCOPED_TRACE(fmt::format("{} rows, {} outputs, {} terms", rows, outputs, terms));
        const Tensor x = bfloat16_of({rows, terms}, 1), weight = bfloat16_of({outputs, terms}, 2);
        for (const Tensor& bias : {Tensor(), bfloat16_of({outputs}, 3)}) {
            const Tensor wanted = in_float64(x, weight, bias);
            expect_close(few_rows(x, weight, bias, DType::float32), wanted, 2e-5);
            expect_close(few_rows(x, weight, bias, DType::bfloat16), wanted, 1.0 / 256);
        }
    }
}

// Whoever else is served: its row in a batch of any size is bit for bit the row alone.
TEST(FewRows, ARowKnowsNoNeighbours) {
    const Tensor x = bfloat16_of({ops::shared::kDecodeRows, 328}, 1), weight = bfloat16_of({37, 328}, 2);
    const Tensor all = few_rows(x, weight, {}, DType::float32);
    for (const std::int64_t count : {1, 2, 8, 9, 16, 17, 32, 33, 64, 65, 127}) {
        SCOPED_TRACE(count);
        for (const std::int64_t first : {std::int64_t{0}, ops::shared::kDecodeRows - count})
            expect_close(few_rows(x.rows(first, count), weight, {}, DType::float32), all.rows(first, count),
                         0.0);
    }
}

TEST(FewRows, TakesWhatItCanRead) {
    const auto takes = [](Shape x, Shape weight, DType dtype = DType::bfloat16) {
        return tested::takes_few_rows(with_dtype(zeros(std::move(x)), dtype),
                                      with_dtype(zeros(std::move(weight)), dtype));
    };
    EXPECT_TRUE(takes({1, 8}, {5, 8}));
    EXPECT_TRUE(takes({128, 64}, {5, 64}));
    EXPECT_FALSE(takes({129, 64}, {5, 64}));
    EXPECT_FALSE(takes({1, 12}, {5, 12}));  // rows at multiples of 8 bytes
    EXPECT_FALSE(takes({1, 0}, {5, 0}));
    EXPECT_FALSE(takes({1, 8}, {5, 8}, DType::float32));
}

}  // namespace
}  // namespace tandem::tests
