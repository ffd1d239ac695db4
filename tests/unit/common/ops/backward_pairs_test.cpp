// The backward of attention by products of bfloat16 pairs, by AVX512-BF16 and by the same source in plain C++: against
// fp64 beside plain bfloat16 arithmetic, the bits of both, and what a gradient may depend on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/ops/cpu/attention/backward.h"
#include "common/ops/matmul.h"
#include "tests/unit/common/ops/backward_pairs_here.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using ops::AttentionSegment;
using ops::detail::BackwardPairsKernels;
using testing::AttentionDims;
using testing::Doubles;
using testing::expect_same_bits;
using testing::random_tensor;
using testing::to_doubles;
using testing::zeros;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct BackwardCase {
    AttentionDims dims;
    std::vector<AttentionSegment> segments;
    Tensor q, k, v, dout;  // bfloat16
    Tensor lse, delta;     // of all keys
    float scale;

    testing::AttentionGradients wanted(bool rounded) const {
        return testing::naive_attention_backward(dims, to_doubles(q), to_doubles(k), to_doubles(v),
                                                 to_doubles(dout), segments, static_cast<double>(scale),
                                                 rounded);
    }
};

BackwardCase backward_case(std::mt19937& generator, const AttentionDims& dims,
                           std::vector<AttentionSegment> segments) {
    const auto rows_of = [&](std::int64_t rows, std::int64_t heads) {
        return random_tensor(generator, {rows, heads, dims.head_dim}, DType::bfloat16);
    };
    BackwardCase c{dims,
                   std::move(segments),
                   rows_of(dims.q_rows, dims.heads),
                   rows_of(dims.k_rows, dims.kv_heads),
                   rows_of(dims.k_rows, dims.kv_heads),
                   rows_of(dims.q_rows, dims.heads),
                   zeros({dims.heads, dims.q_rows}),
                   zeros({dims.heads, dims.q_rows}),
                   1.0f / std::sqrt(static_cast<float>(dims.head_dim))};
    const auto forward = testing::naive_attention(dims, to_doubles(c.q), to_doubles(c.k), to_doubles(c.v),
                                                  c.segments, static_cast<double>(c.scale));
    const Doubles dout = to_doubles(c.dout);
    for (std::int64_t row = 0; row < dims.q_rows; ++row) {
        for (std::int64_t head = 0; head < dims.heads; ++head) {
            const std::int64_t at = head * dims.q_rows + row;
            double delta = 0.0;
            for (std::int64_t d = 0; d < dims.head_dim; ++d) {
                const auto i = static_cast<std::size_t>((row * dims.heads + head) * dims.head_dim + d);
                delta += dout[i] * forward.out[i];
            }
            c.delta.data<float>()[at] = static_cast<float>(delta);
            c.lse.data<float>()[at] = static_cast<float>(forward.lse[static_cast<std::size_t>(at)]);
        }
    }
    return c;
}

struct PairGradients {
    Tensor dq, dk, dv;
};

// What is added to gradients that are 0.
PairGradients gradients_by(const BackwardPairsKernels& kernels, const BackwardCase& c) {
    PairGradients g{zeros(c.q.shape()), zeros(c.k.shape()), zeros(c.v.shape())};
    const auto shape = ops::detail::attention_shape(c.q, c.k);
    const ops::detail::BackwardOperands operands{c.dout, c.q,     c.k,  c.v,  c.lse, c.delta,
                                                 shape,  c.scale, g.dq, g.dk, g.dv};
    for (std::int64_t kv_head = 0; kv_head < c.dims.kv_heads; ++kv_head)
        ops::detail::backward_pairs_kv_head(kernels, operands, c.segments, kv_head);
    return g;
}

void expect_same_gradients(const PairGradients& a, const PairGradients& b, const char* what) {
    expect_same_bits(a.dq, b.dq, what);
    expect_same_bits(a.dk, b.dk, what);
    expect_same_bits(a.dv, b.dv, what);
}

void check_gradients(const BackwardCase& c) {
    const auto exact = c.wanted(false), plain = c.wanted(true);
    std::vector<PairGradients> all;
    for (const BackwardPairsKernels* kernels : testing::backward_pairs_here()) {
        all.push_back(gradients_by(*kernels, c));
        testing::expect_within_plain(all.back().dq, exact.dq, plain.dq, "dq");
        testing::expect_within_plain(all.back().dk, exact.dk, plain.dk, "dk");
        testing::expect_within_plain(all.back().dv, exact.dv, plain.dv, "dv");
    }
    for (const PairGradients& other : all)
        expect_same_gradients(other, all.front(), "hardware and plain C++");
}

// Rectangles over disjoint rows of q, with gaps; their keys may overlap.
std::vector<AttentionSegment> packed_rectangles(std::mt19937& generator, const AttentionDims& dims) {
    const auto below = [&](std::int64_t count) {
        return std::uniform_int_distribution<std::int64_t>(0, count)(generator);
    };
    std::vector<AttentionSegment> segments;
    for (std::int64_t at = below(2); at < dims.q_rows;) {
        const std::int64_t q_len = below(dims.q_rows - at), k_begin = below(dims.k_rows);
        segments.push_back({at, q_len, k_begin, below(dims.k_rows - k_begin), below(3) != 0});
        at += q_len + 1 + below(2);
    }
    return segments;
}

TEST(BackwardPairs, RandomShapes) {
    std::mt19937 generator(1);
    const std::int64_t heads[][2] = {{1, 1}, {2, 1}, {4, 2}, {3, 3}};
    const std::int64_t dims[] = {64, 1, 5, 16, 20, 33, 80, 96, 128, 200};
    for (int round = 0; round < 60; ++round) {
        const auto& [h, kv] = heads[round % 4];
        const AttentionDims shape{1 + static_cast<std::int64_t>(generator() % 150),
                                  1 + static_cast<std::int64_t>(generator() % 190), h, kv, dims[round % 10]};
        check_gradients(backward_case(generator, shape, packed_rectangles(generator, shape)));
        if (HasFatalFailure()) FAIL() << "round " << round;
    }
}

// Every remainder of a block, and one row more or fewer than a tile.
TEST(BackwardPairs, EveryLength) {
    std::mt19937 generator(2);
    for (std::int64_t length = 1; length <= 262; length += length < 70 || length > 120 ? 1 : 7) {
        if (length == 140) length = 250;
        check_gradients(
            backward_case(generator, {length, length, 1, 1, 64}, {{0, length, 0, length, length % 3 != 0}}));
        if (HasFatalFailure()) FAIL() << length << " rows";
    }
}

TEST(BackwardPairs, RowsThatSeeNothing) {
    std::mt19937 generator(3);
    for (const std::int64_t dim : {20, 64}) {
        check_gradients(backward_case(generator, {90, 40, 2, 1, dim},
                                      {{0, 40, 0, 5, true}, {40, 10, 3, 0, true}, {51, 30, 8, 32, true}}));
        check_gradients(backward_case(generator, {3, 0, 2, 1, dim}, {}));
    }
}

// A row's dq is that of any piece of its sequence, bit for bit; its neighbours in the tile are others.
TEST(BackwardPairs, ARowKnowsNoNeighbours) {
    std::mt19937 generator(4);
    const std::int64_t rows = 300;
    const BackwardCase whole = backward_case(generator, {rows, rows, 2, 1, 64}, {{0, rows, 0, rows, true}});
    for (const BackwardPairsKernels* kernels : testing::backward_pairs_here()) {
        const Tensor dq = gradients_by(*kernels, whole).dq;
        for (const std::int64_t n : {1, 2, 63, 64, 65, 129, 200, 299}) {
            for (const std::int64_t first : {n / 3, n - 1}) {
                BackwardCase piece = whole;  // queries first .. n over keys 0 .. n: aligned bottom-right
                piece.segments = {{first, n - first, 0, n, true}};
                const Tensor part = gradients_by(*kernels, piece).dq;
                expect_same_bits(part.rows(first, n - first), dq.rows(first, n - first), "piece");
                if (HasFatalFailure()) FAIL() << first << " to " << n;
            }
        }
    }
}

void fill_rows(const Tensor& tensor, std::int64_t begin, std::int64_t count, int byte) {
    const Tensor rows = tensor.rows(begin, count);
    std::memset(rows.raw(), byte, rows.bytes());
}

// NaN beside a segment's rows changes no bit of its gradients, nor does what an earlier call left in memory: lengths
// and columns are odd, so that every pair's other half is in use.
TEST(BackwardPairs, WhatIsNotOfTheSegmentDoesNotCount) {
    std::mt19937 generator(5);
    for (const std::int64_t dim : {5, 33, 64, 79}) {
        const BackwardCase clean = backward_case(generator, {70, 90, 2, 1, dim}, {{3, 37, 5, 45, dim != 64}});
        for (const BackwardPairsKernels* kernels : testing::backward_pairs_here()) {
            const PairGradients wanted = gradients_by(*kernels, clean);
            BackwardCase all_nan = backward_case(generator, {150, 150, 2, 1, dim}, {{0, 150, 0, 150, false}});
            for (const Tensor& tensor : {all_nan.q, all_nan.k, all_nan.v, all_nan.dout})
                fill_rows(tensor, 0, 150, 0xff);
            for (const Tensor& tensor : {all_nan.lse, all_nan.delta}) fill_rows(tensor, 0, 2, 0xff);
            gradients_by(*kernels, all_nan);
            expect_same_gradients(gradients_by(*kernels, clean), wanted, "after NaN in every tile");

            BackwardCase among = clean;
            for (Tensor* tensor : {&among.q, &among.dout, &among.k, &among.v})
                *tensor = tensor->clone("test");
            for (const Tensor& tensor : {among.q, among.dout}) {
                fill_rows(tensor, 0, 3, 0xff);
                fill_rows(tensor, 40, 30, 0xff);
            }
            for (const Tensor& tensor : {among.k, among.v}) {
                fill_rows(tensor, 0, 5, 0xff);
                fill_rows(tensor, 50, 40, 0xff);
            }
            expect_same_gradients(gradients_by(*kernels, among), wanted, "among NaN");
            if (HasFatalFailure()) FAIL() << dim << " columns";
        }
    }
}

// NaN that wider heads left in memory, where the padding of these lies.
TEST(BackwardPairs, WhatAnotherHeadDimLeftDoesNotCount) {
    std::mt19937 generator(8);
    BackwardCase all_nan = backward_case(generator, {128, 64, 1, 1, 256}, {{0, 128, 0, 64, false}});
    for (const Tensor& tensor : {all_nan.q, all_nan.dout}) fill_rows(tensor, 0, 128, 0xff);
    for (const Tensor& tensor : {all_nan.k, all_nan.v}) fill_rows(tensor, 0, 64, 0xff);
    for (const std::int64_t dim : {5, 33, 64, 79}) {
        const BackwardCase clean = backward_case(generator, {37, 45, 1, 1, dim}, {{0, 37, 0, 45, true}});
        for (const BackwardPairsKernels* kernels : testing::backward_pairs_here()) {
            const PairGradients wanted = gradients_by(*kernels, clean);
            gradients_by(*kernels, all_nan);
            expect_same_gradients(gradients_by(*kernels, clean), wanted, "after NaN");
            EXPECT_FALSE(std::isnan(wanted.dq.data<float>()[0])) << dim;
        }
    }
}

// NaN within a row is that row's alone to begin with: the gradients of rows of other tiles stay as they are.
TEST(BackwardPairs, NaNStaysNaN) {
    std::mt19937 generator(6);
    BackwardCase c = backward_case(generator, {200, 200, 1, 1, 64}, {{0, 200, 0, 200, true}});
    for (const BackwardPairsKernels* kernels : testing::backward_pairs_here()) {
        const Tensor before = gradients_by(*kernels, c).dq;
        BackwardCase broken = c;
        broken.dout = c.dout.clone("test");
        broken.dout.data<bfloat16>()[150 * 64 + 7] = bfloat16(kNaN);
        const Tensor dq = gradients_by(*kernels, broken).dq;
        EXPECT_TRUE(std::isnan(dq.data<float>()[150 * 64]));
        expect_same_bits(dq.rows(0, 150), before.rows(0, 150), "rows before");
        expect_same_bits(dq.rows(151, 49), before.rows(151, 49), "rows behind");
    }
}

// Ring attention: the op over blocks of keys with the whole row's lse and delta, by some threads.
TEST(BackwardPairs, BlocksAddUpToTheWholeByAnyThreads) {
    std::mt19937 generator(7);
    Stream stream = Stream::make_inline();
    const BackwardCase c = backward_case(generator, {100, 100, 6, 3, 32}, {{0, 100, 0, 100, true}});
    const std::vector<std::vector<AttentionSegment>> blocks = {
        {{40, 60, 30, 70, true}}, {{0, 30, 0, 30, true}, {40, 60, 0, 30, false}}, {{30, 10, 0, 40, true}}};
    const auto exact = c.wanted(false), plain = c.wanted(true);
    std::vector<PairGradients> all;
    for (const int threads : {1, 3}) {
        ops::set_compute_threads(threads);
        const PairGradients g{zeros(c.q.shape()), zeros(c.k.shape()), zeros(c.v.shape())};
        for (const auto& block : blocks) {
            ops::attention_backward(stream, c.dout, c.q, c.k, c.v, c.lse, c.delta, block, c.scale, g.dq, g.dk,
                                    g.dv);
        }
        testing::expect_within_plain(g.dq, exact.dq, plain.dq, "dq");
        testing::expect_within_plain(g.dk, exact.dk, plain.dk, "dk");
        testing::expect_within_plain(g.dv, exact.dv, plain.dv, "dv");
        all.push_back(g);
    }
    ops::set_compute_threads(1);
    expect_same_gradients(all[0], all[1], "three threads");
}

}  // namespace
}  // namespace tandem
