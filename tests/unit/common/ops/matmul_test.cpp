// Matrix products against fp64, and what they refuse. ctest runs these and matmul_bits_test.cpp again with oneDNN held to fewer
// instruction sets (with AVX2 it has no kernels of its own and no bfloat16), and with the base's blocks alone.
#include "common/ops/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using ops::Transpose;
using testing::Doubles;
using testing::random_tensor;
using testing::to_doubles;
using testing::zeros;

Doubles naive(const Tensor& a, bool ta, const Tensor& b, bool tb, const Doubles& c, std::int64_t m,
              std::int64_t n, std::int64_t k) {
    const Doubles x = to_doubles(a);
    const Doubles y = to_doubles(b);
    Doubles result = c;
    for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
            for (std::int64_t l = 0; l < k; ++l) {
                result[static_cast<std::size_t>(i * n + j)] +=
                    x[static_cast<std::size_t>(ta ? l * m + i : i * k + l)] *
                    y[static_cast<std::size_t>(tb ? j * k + l : l * n + j)];
            }
        }
    }
    return result;
}

TEST(Matmul, EveryFormAgainstFp64) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(1);
    const std::int64_t shapes[][3] = {{1, 1, 1},    {1, 16, 64},   {5, 7, 3},
                                      {33, 48, 17}, {64, 64, 100}, {2, 130, 576}};
    for (const auto& [m, n, k] : shapes) {
        for (int form = 0; form < 24; ++form) {
            const bool ta = (form & 1) != 0;
            const bool tb = (form & 2) != 0;
            const bool accumulate = (form & 4) != 0;
            const DType in = form < 8 ? DType::float32 : DType::bfloat16;
            const DType out = form < 16 ? DType::float32 : DType::bfloat16;
            const Tensor a = random_tensor(generator, ta ? Shape{k, m} : Shape{m, k}, in);
            const Tensor b = random_tensor(generator, tb ? Shape{n, k} : Shape{k, n}, in);
            const Tensor c = random_tensor(generator, {m, n}, out);
            const Doubles before = accumulate ? to_doubles(c) : Doubles(static_cast<std::size_t>(m * n), 0.0);
            const Doubles wanted = naive(a, ta, b, tb, before, m, n, k);
            ops::matmul(stream, a, ta ? Transpose::yes : Transpose::no, b,
                        tb ? Transpose::yes : Transpose::no, c, accumulate);
            testing::expect_close(c, wanted, 1e-5, "c");
            if (HasFatalFailure()) FAIL() << "m " << m << " n " << n << " k " << k << " form " << form;
        }
    }
}

TEST(Matmul, LinearAndItsGradients) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(2);
    const std::int64_t tokens = 37, in = 24, out = 40;
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const Tensor x = random_tensor(generator, {tokens, in}, dtype);
        const Tensor weight = random_tensor(generator, {out, in}, dtype);
        const Tensor dy = random_tensor(generator, {tokens, out}, dtype);
        const Tensor y = zeros({tokens, out}, dtype);
        ops::linear(stream, x, weight, y);
        testing::expect_close(y, naive(x, false, weight, true, Doubles(tokens * out, 0.0), tokens, out, in),
                              1e-5, "y");
        const Tensor dx = random_tensor(generator, {tokens, in}, dtype);
        const Doubles wanted = naive(dy, false, weight, false, to_doubles(dx), tokens, in, out);
        ops::linear_backward_input(stream, dy, weight, dx, true);
        testing::expect_close(dx, wanted, 1e-5, "dx");
        const Tensor dweight = random_tensor(generator, {out, in});
        const Doubles wanted_weight = naive(dy, true, x, false, to_doubles(dweight), out, in, tokens);
        ops::linear_backward_weight(stream, dy, x, dweight, true);
        testing::expect_close(dweight, wanted_weight, 1e-5, "dweight");
        std::ranges::fill(dweight.values<float>(), std::numeric_limits<float>::quiet_NaN());
        ops::linear_backward_weight(stream, dy, x, dweight, false);
        testing::expect_close(dweight, naive(dy, true, x, false, Doubles(out * in, 0.0), out, in, tokens),
                              1e-5, "dweight, written");
    }
}

TEST(Matmul, LinearWithBiasAndItsGradient) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(6);
    const std::int64_t shapes[][3] = {{1, 7, 5}, {5, 40, 24}, {150, 33, 17}, {64, 64, 576}, {200, 1100, 64}};
    for (const auto& [tokens, out, in] : shapes) {
        for (int form = 0; form < 3; ++form) {
            const DType dtype = form == 0 ? DType::float32 : DType::bfloat16;
            const Tensor x = random_tensor(generator, {tokens, in}, dtype);
            const Tensor weight = random_tensor(generator, {out, in}, dtype);
            const Tensor bias = random_tensor(generator, {out}, dtype, 30.0f);
            const Tensor y = zeros({tokens, out}, form == 2 ? DType::bfloat16 : DType::float32);
            Doubles before;
            const Doubles row = to_doubles(bias);
            for (std::int64_t t = 0; t < tokens; ++t) before.insert(before.end(), row.begin(), row.end());
            ops::linear(stream, x, weight, bias, y);
            testing::expect_close(y, naive(x, false, weight, true, before, tokens, out, in), 1e-5, "y");

            const Tensor dy = random_tensor(generator, {tokens, out}, dtype);
            const Tensor dbias = random_tensor(generator, {out});
            Doubles wanted = to_doubles(dbias);
            const Doubles rows = to_doubles(dy);
            for (std::size_t i = 0; i < rows.size(); ++i) wanted[i % wanted.size()] += rows[i];
            const Tensor threaded = dbias.clone("test");
            ops::linear_backward_bias(stream, dy, dbias);
            testing::expect_close(dbias, wanted, 1e-5, "dbias");
            ops::set_compute_threads(2);
            ops::linear_backward_bias(stream, dy, threaded);
            ops::set_compute_threads(1);
            testing::expect_same_bits(threaded, dbias, "two threads");
            if (HasFatalFailure()) FAIL() << "out " << out << " in " << in << " form " << form;
        }
    }
    const Tensor x = zeros({3, 4}), weight = zeros({5, 4}), y = zeros({3, 5});
    EXPECT_THROW(ops::linear(stream, x, weight, zeros({4}), y), InvalidArgument);
    EXPECT_THROW(ops::linear(stream, x, weight, zeros({5}, DType::bfloat16), y), InvalidArgument);
    EXPECT_THROW(ops::linear_backward_bias(stream, y, zeros({4})), InvalidArgument);
    EXPECT_THROW(ops::linear_backward_bias(stream, y, zeros({5}, DType::bfloat16)), InvalidArgument);
}

// So long that, widened, all of them would take 80 MB: where bfloat16 is widened they are taken in turns.
TEST(Matmul, LongRowsInTurnsAreTheWhole) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(13);
    constexpr std::int64_t kRows = 300, n = 3, k = 70'000;
    const Tensor weight = random_tensor(generator, {n, k}, DType::bfloat16),
                 x = zeros({kRows, k}, DType::bfloat16);
    const Tensor few = random_tensor(generator, {20, k}, DType::bfloat16);
    const std::int64_t first = 245;  // 256 rows are a turn
    std::memcpy(x.rows(first, 20).raw(), few.raw(), few.bytes());
    const Tensor whole = zeros({kRows, n}), alone = zeros({20, n});
    ops::set_compute_threads(2);
    ops::linear(stream, x, weight, whole);
    ops::linear(stream, few, weight, alone);
    ops::set_compute_threads(1);
    testing::expect_same_bits(whole.rows(first, 20), alone, "rows around a turn's end");
    testing::expect_same_bits(whole.rows(0, 20), zeros({20, n}), "rows of zeros");
    testing::expect_close(alone, naive(few, false, weight, true, Doubles(20 * n, 0.0), 20, n, k), 1e-4,
                          "alone");
}

// The gradient of a weight of some 256 rows and more, which are its pieces where bfloat16 is widened.
TEST(Matmul, GradientsOfLargeWeightsAgainstFp64) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(14);
    const std::int64_t shapes[][3] = {{255, 9, 33}, {256, 3, 1}, {257, 5, 600}, {600, 20, 37}, {70, 4, 2100}};
    for (const auto& [out, in, tokens] : shapes) {
        const Tensor x = random_tensor(generator, {tokens, in}, DType::bfloat16);
        const Tensor dy = random_tensor(generator, {tokens, out}, DType::bfloat16);
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            for (const bool accumulate : {false, true}) {
                const Tensor one = random_tensor(generator, {out, in}, dtype), two = one.clone("test");
                const Doubles before =
                    accumulate ? to_doubles(one) : Doubles(static_cast<std::size_t>(out * in), 0.0);
                ops::matmul(stream, dy, Transpose::yes, x, Transpose::no, one, accumulate);
                testing::expect_close(one, naive(dy, true, x, false, before, out, in, tokens), 1e-5,
                                      "one thread");
                ops::set_compute_threads(2);
                ops::matmul(stream, dy, Transpose::yes, x, Transpose::no, two, accumulate);
                ops::set_compute_threads(1);
                testing::expect_close(two, naive(dy, true, x, false, before, out, in, tokens), 1e-5,
                                      "two threads");
                if (HasFatalFailure()) FAIL() << "out " << out << " in " << in << " tokens " << tokens;
            }
        }
    }
}

TEST(Matmul, EmptyDims) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(5);
    const Tensor c = random_tensor(generator, {3, 4});
    const Tensor before = c.clone("test");
    ops::matmul(stream, zeros({3, 0}), Transpose::no, zeros({0, 4}), Transpose::no, c, true);
    testing::expect_same_bits(c, before, "k = 0, accumulate");
    ops::matmul(stream, zeros({3, 0}), Transpose::no, zeros({0, 4}), Transpose::no, c);
    testing::expect_same_bits(c, zeros({3, 4}), "k = 0");
    ops::linear(stream, zeros({0, 5}), zeros({4, 5}), zeros({0, 4}));
}

TEST(Matmul, RefusesWhatDoesNotFit) {
    Stream stream = Stream::make_inline();
    const Tensor a = zeros({3, 4});
    EXPECT_THROW(ops::linear(stream, a, zeros({5, 3}), zeros({3, 5})), InvalidArgument);
    EXPECT_THROW(ops::linear(stream, a, zeros({5, 4}), zeros({3, 4})), InvalidArgument);
    EXPECT_THROW(ops::linear(stream, a, zeros({5, 4}, DType::bfloat16), zeros({3, 5})), InvalidArgument);
    EXPECT_THROW(ops::linear(stream, a, zeros({5, 4}), zeros({3, 5}, DType::bfloat16)), InvalidArgument);
    EXPECT_THROW(ops::linear(stream, a, Tensor(), zeros({3, 5})), InvalidArgument);
    EXPECT_THROW(ops::set_compute_threads(0), InvalidArgument);
    try {
        ops::linear(stream, a, zeros({5, 3}), zeros({3, 5}));
    } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find("[5, 3]"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace tandem
