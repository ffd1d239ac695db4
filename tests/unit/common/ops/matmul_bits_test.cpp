// The rows of a product bit for bit: whatever their number, threads, a packed copy of the weight or other products beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "common/device/memory.h"
#include "common/ops/matmul.h"
#include "common/ops/packed_weight.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using testing::random_tensor;
using testing::zeros;

struct LinearShape {
    std::int64_t n, k;
};

class BatchInvariance : public ::testing::TestWithParam<LinearShape> {};

// The rows of a small product are the rows of the big one.
TEST_P(BatchInvariance, RowsDoNotDependOnTheirNumber) {
    const auto [n, k] = GetParam();
    Stream stream = Stream::make_inline();
    std::mt19937 generator(3);
    std::vector<std::int64_t> counts = {65, 96, 100, 127, 128, 129, 200, 255, 256, 257, 300};
    const std::int64_t small = n * k > 1'000'000 ? 16 : 64;
    for (std::int64_t m = 1; m <= small; ++m) counts.push_back(m);
    if (n * k > 8'000'000) counts = {1, 2, 7, 8, 16, 31, 33, 64};
    const std::int64_t rows = n * k > 8'000'000 ? 65 : 320;
    for (int form = 0; form < 5;
         ++form) {  // fp32, bf16 to fp32, bf16; the first and the last with a bias too
        const DType in = form % 3 == 0 ? DType::float32 : DType::bfloat16;
        const DType out = form == 2 || form == 4 ? DType::bfloat16 : DType::float32;
        const Tensor weight = random_tensor(generator, {n, k}, in);
        const Tensor bias = form < 3 ? Tensor() : random_tensor(generator, {n}, in);
        const Tensor x = random_tensor(generator, {rows, k}, in);
        const Tensor whole = zeros({rows, n}, out);
        ops::linear(stream, x, weight, bias, whole);
        ops::PackedWeight packed;
        packed.pack(weight, "test");
        for (const std::int64_t m : counts) {
            const std::int64_t begin = m % 3;  // not only rows from the start
            const Tensor part = zeros({m, n}, out);
            ops::linear(stream, x.rows(begin, m), weight, bias, part);
            testing::expect_same_bits(part, whole.rows(begin, m), "part of the rows");
            const Tensor from_packed = zeros({m, n}, out);
            ops::linear(stream, x.rows(begin, m), packed, bias, from_packed);
            testing::expect_same_bits(from_packed, part, "with the weight packed");
            if (HasFatalFailure()) FAIL() << "n " << n << " k " << k << " m " << m << " form " << form;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Quickstart, BatchInvariance,
                         ::testing::Values(LinearShape{64, 64}, LinearShape{32, 64}, LinearShape{192, 64},
                                           LinearShape{64, 192}, LinearShape{16, 64}, LinearShape{16, 16},
                                           LinearShape{48, 32}, LinearShape{128, 128}, LinearShape{20, 48}));
INSTANTIATE_TEST_SUITE_P(SmolLm2, BatchInvariance,
                         ::testing::Values(LinearShape{576, 576}, LinearShape{192, 576},
                                           LinearShape{1536, 576}, LinearShape{576, 1536},
                                           LinearShape{4096, 576}));
INSTANTIATE_TEST_SUITE_P(Large, BatchInvariance,
                         ::testing::Values(LinearShape{256, 4096}, LinearShape{1000, 1000},
                                           LinearShape{49152, 192}));

// Shapes that nobody thought of: any rows of them, plain and packed, with a bias, added to what is there, of
// a weight as it is stored and of one to be transposed, on one thread and on two.
TEST(BatchInvarianceOfAnyShape, RowsDoNotDependOnTheirNumber) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(8);
    const auto up_to = [&](std::int64_t most) {
        return 1 + static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(most));
    };
    for (int shape = 0; shape < 24; ++shape) {
        const std::int64_t n = up_to(shape % 3 == 0 ? 40 : 1200), k = up_to(shape % 4 == 0 ? 40 : 2000);
        const std::int64_t rows = up_to(200);
        const DType in = shape % 2 == 0 ? DType::bfloat16 : DType::float32;
        const DType out = shape % 4 == 0 ? DType::bfloat16 : DType::float32;
        const Tensor weight = random_tensor(generator, {n, k}, in), bias = random_tensor(generator, {n}, in);
        const Tensor transposed = random_tensor(generator, {k, n}, in);
        const Tensor x = random_tensor(generator, {rows, k}, in),
                     before = random_tensor(generator, {rows, n}, out);
        ops::PackedWeight packed;
        packed.pack(weight, "test");
        const auto products = [&](std::int64_t begin, std::int64_t count, int threads) {
            ops::set_compute_threads(threads);
            std::array<Tensor, 3> c = {zeros({count, n}, out), zeros({count, n}, out),
                                       before.rows(begin, count).clone("test")};
            const Tensor part = x.rows(begin, count);
            ops::linear(stream, part, packed, {}, c[0]);
            ops::linear(stream, part, weight, bias, c[1]);
            ops::linear_backward_input(stream, part, transposed, c[2], true);
            const Tensor plain = zeros({count, n}, out);
            ops::linear(stream, part, weight, plain);
            testing::expect_same_bits(c[0], plain, "packed and plain");
            ops::set_compute_threads(1);
            return c;
        };
        const auto whole = products(0, rows, 1);
        for (int i = 0; i < 6; ++i) {
            const std::int64_t count = i == 0 ? 1 : up_to(rows);
            const std::int64_t begin = up_to(rows - count + 1) - 1;
            const auto part = products(begin, count, 1 + i % 2);
            for (std::size_t j = 0; j < part.size(); ++j)
                testing::expect_same_bits(part[j], whole[j].rows(begin, count), "some of the rows");
            if (HasNonfatalFailure() || HasFatalFailure())
                FAIL() << "n " << n << " k " << k << " rows " << begin << " + " << count << " of " << rows;
        }
    }
}

TEST(Matmul, ThreadsDoNotChangeTheRows) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(4);
    const Tensor weight = random_tensor(generator, {576, 1536});
    const Tensor x = random_tensor(generator, {70, 1536});
    const Tensor one = zeros({70, 576});
    ops::linear(stream, x, weight, one);
    ops::set_compute_threads(2);
    for (const std::int64_t m : {1, 3, 16, 70}) {
        const Tensor two = zeros({m, 576});
        ops::linear(stream, x.rows(0, m), weight, two);
        testing::expect_same_bits(two, one.rows(0, m), "two threads");
    }
    ops::set_compute_threads(1);
}

// Whole chunks, a narrow rest, a last round cut by rows in blocks of 64 and of 16: for any number of threads.
TEST(Matmul, PiecesOfAnyNumberOfThreadsAreTheWhole) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(9);
    constexpr std::int64_t kRows = 300, k = 576;
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const std::int64_t n : {40, 100, 192, 576}) {
            const Tensor weight = random_tensor(generator, {n, k}, dtype),
                         bias = random_tensor(generator, {n}, dtype);
            const Tensor x = random_tensor(generator, {kRows, k}, dtype), whole = zeros({kRows, n}, dtype);
            ops::PackedWeight packed;
            packed.pack(weight, "test");
            ops::linear(stream, x, weight, bias, whole);
            for (const int threads : {2, 3, 4, 7}) {
                ops::set_compute_threads(threads);
                for (const std::int64_t m : {1, 16, 33, 64, 100, 300}) {
                    const Tensor plain = zeros({m, n}, dtype), from_packed = zeros({m, n}, dtype);
                    ops::linear(stream, x.rows(0, m), weight, bias, plain);
                    ops::linear(stream, x.rows(0, m), packed, bias, from_packed);
                    testing::expect_same_bits(plain, whole.rows(0, m), "plain");
                    testing::expect_same_bits(from_packed, whole.rows(0, m), "packed");
                }
                ops::set_compute_threads(1);
            }
        }
    }
}

// Among them one without a copy, one alone with a bias, and one of nothing.
TEST(Matmul, SeveralOfOneXAreEachItsOwn) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(10);
    constexpr std::int64_t kRows = 70, k = 576;
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const Tensor x = random_tensor(generator, {kRows, k}, dtype);
        std::vector<ops::PackedWeight> weights(6);
        std::vector<Tensor> biases(weights.size());
        std::size_t next = 0;
        for (const std::int64_t n : {100, 576, 192, 40, 0, 192}) {
            const Tensor weight = random_tensor(generator, {n, k}, dtype);
            next == 2 ? weights[next].point(weight) : weights[next].pack(weight, "test");
            if (next == 1) biases[next] = random_tensor(generator, {n}, dtype);
            ++next;
        }
        for (const int threads : {1, 2, 3, 7}) {
            ops::set_compute_threads(threads);
            for (const std::int64_t m : {0, 1, 16, 40, 64, 70}) {
                std::vector<ops::Projection> projections;
                for (std::size_t i = 0; i < weights.size(); ++i)
                    projections.push_back(
                        {&weights[i], biases[i], zeros({m, weights[i].weight().dim(0)}, dtype)});
                ops::linear(stream, x.rows(0, m), projections);
                for (const ops::Projection& one : projections) {
                    const Tensor wanted = zeros(one.y.shape(), dtype);
                    ops::linear(stream, x.rows(0, m), one.weight->weight(), one.bias, wanted);
                    testing::expect_same_bits(one.y, wanted, "beside others");
                }
            }
            ops::set_compute_threads(1);
        }
        const ops::Projection wrong[] = {{&weights[0], {}, zeros({kRows, 100}, dtype)},
                                         {&weights[1], {}, zeros({kRows, 100}, dtype)}};
        EXPECT_THROW(ops::linear(stream, x, wrong), InvalidArgument);
    }
    ops::linear(stream, zeros({3, 4}), std::span<const ops::Projection>());
}

TEST(Matmul, PackedWeightIsOfTheTimeOfPacking) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(6);
    const Tensor weight = random_tensor(generator, {100, 72});
    const Tensor x = random_tensor(generator, {5, 72});
    ops::PackedWeight packed;
    for (int version = 0; version < 3; ++version) {
        const Tensor next = random_tensor(generator, {100, 72});
        std::memcpy(weight.raw(), next.raw(), weight.bytes());
        ops::set_compute_threads(1 + version % 2);
        packed.pack(weight, "packed_test");
        ops::set_compute_threads(2 - version % 2);
        const Tensor wanted = zeros({5, 100}), got = zeros({5, 100});
        ops::linear(stream, x, weight, wanted);
        ops::linear(stream, x, packed, {}, got);
        testing::expect_same_bits(got, wanted, "packed anew");
    }
    ops::set_compute_threads(1);
    EXPECT_LE(memory_stats("packed_test").allocations, 1U);  // none where the machine has no better layout
    EXPECT_EQ(memory_stats("packed_test").live_bytes, packed.packed().bytes);
    const Tensor nothing = zeros({4, 0});
    packed.pack(nothing, "packed_test");
    const Tensor y = random_tensor(generator, {3, 4});
    ops::linear(stream, zeros({3, 0}), packed, {}, y);
    testing::expect_same_bits(y, zeros({3, 4}), "k = 0");
    EXPECT_THROW(ops::linear(stream, zeros({3, 1}), packed, {}, y), InvalidArgument);
}

TEST(Matmul, PackedWeightInMemoryOfTheCaller) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(7);
    const Tensor weight = random_tensor(generator, {100, 72}), x = random_tensor(generator, {5, 72});
    const std::size_t bytes = ops::PackedWeight::packed_bytes(weight);
    const Buffer memory(bytes + 64, "caller_test");
    ops::PackedWeight packed;
    packed.pack_into(weight, memory.span());
    EXPECT_EQ(packed.packed().bytes, bytes);
    EXPECT_EQ(packed.packed().data, memory.data());
    const Tensor wanted = zeros({5, 100}), got = zeros({5, 100});
    ops::linear(stream, x, weight, wanted);
    ops::linear(stream, x, packed, {}, got);
    testing::expect_same_bits(got, wanted, "packed in the caller's memory");
    if (bytes > 0) {
        EXPECT_THROW(packed.pack_into(weight, memory.span().subspan(0, bytes - 1)), InvalidArgument);
    }
    packed.point(weight);
    EXPECT_EQ(packed.packed().bytes, 0U);
}

}  // namespace
}  // namespace tandem
