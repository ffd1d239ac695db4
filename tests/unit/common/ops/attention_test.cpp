// Attention against the fp64 oracle: segments, GQA, masks, gradients, merging.
#include "common/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/ops/elementwise.h"
#include "common/ops/matmul.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using ops::AttentionSegment;
using testing::attention_case;
using testing::AttentionCase;
using testing::AttentionDims;
using testing::Doubles;
using testing::expect_close;
using testing::random_tensor;
using testing::to_doubles;
using testing::zeros;

// Random rectangles over disjoint q rows; k ranges may overlap.
std::vector<AttentionSegment> random_segments(std::mt19937& generator, const AttentionDims& dims) {
    std::vector<AttentionSegment> segments;
    std::int64_t at = 0;
    const auto pick = [&](std::int64_t below) {
        return std::uniform_int_distribution<std::int64_t>(0, std::max<std::int64_t>(0, below))(generator);
    };
    while (at < dims.q_rows) {
        at += pick(3);  // rows in no segment
        if (at >= dims.q_rows) break;
        const std::int64_t q_len = pick(dims.q_rows - at);
        const std::int64_t k_begin = pick(dims.k_rows);
        segments.push_back({at, q_len, k_begin, pick(dims.k_rows - k_begin), pick(1) == 1});
        at += q_len + 1;
    }
    return segments;
}

struct Outputs {
    Tensor out, lse;
};

const float kNothing = -std::numeric_limits<float>::infinity();

Outputs forward(const AttentionCase& c, DType out_dtype = DType::float32) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(99);
    Outputs r{random_tensor(generator, c.q.shape(), out_dtype),  // rubbish: every row must be written
              random_tensor(generator, {c.dims.heads, c.dims.q_rows})};
    ops::attention_forward(stream, c.q, c.k, c.v, c.segments, c.scale, r.out, r.lse);
    return r;
}

void check_forward(const AttentionCase& c, DType out_dtype = DType::float32) {
    const auto naive = [&](bool rounded) {
        return testing::naive_attention(c.dims, to_doubles(c.q), to_doubles(c.k), to_doubles(c.v), c.segments,
                                        static_cast<double>(c.scale), rounded);
    };
    const auto wanted = naive(false);
    const Outputs got = forward(c, out_dtype);
    expect_close(got.lse, wanted.lse, 1e-5, "lse");
    if (c.q.dtype() == DType::bfloat16) {  // p may be rounded
        testing::expect_within_plain(got.out, wanted.out, naive(true).out, "out", 2.0);
    } else {
        expect_close(got.out, wanted.out, 1e-5, "out");
    }
}

void check_backward(std::mt19937& generator, const AttentionCase& c) {
    Stream stream = Stream::make_inline();
    const Outputs f = forward(c);
    const Tensor dout = random_tensor(generator, c.q.shape(), c.q.dtype());
    const Tensor delta = zeros({c.dims.heads, c.dims.q_rows});
    ops::attention_delta(stream, dout, f.out, delta);
    const Tensor dq = zeros(c.q.shape());
    const Tensor dk = zeros(c.k.shape());
    const Tensor dv = zeros(c.v.shape());
    ops::attention_backward(stream, dout, c.q, c.k, c.v, f.lse, delta, c.segments, c.scale, dq, dk, dv);
    const auto gradients = [&](bool rounded) {
        return testing::naive_attention_backward(c.dims, to_doubles(c.q), to_doubles(c.k), to_doubles(c.v),
                                                 to_doubles(dout), c.segments, static_cast<double>(c.scale),
                                                 rounded);
    };
    const auto wanted = gradients(false);
    if (c.q.dtype() == DType::bfloat16) {  // p and ds may be rounded
        const auto plain = gradients(true);
        testing::expect_within_plain(dq, wanted.dq, plain.dq, "dq");
        testing::expect_within_plain(dk, wanted.dk, plain.dk, "dk");
        testing::expect_within_plain(dv, wanted.dv, plain.dv, "dv");
        return;
    }
    expect_close(dq, wanted.dq, 2e-5, "dq", 5e-6);
    expect_close(dk, wanted.dk, 2e-5, "dk", 5e-6);
    expect_close(dv, wanted.dv, 2e-5, "dv", 5e-6);
}

TEST(Attention, SquareCausalAndFull) {
    std::mt19937 generator(1);
    for (const std::int64_t length : {1, 2, 15, 47, 48, 49, 63, 64, 65, 130, 200}) {
        for (const bool causal : {true, false}) {
            const AttentionCase c =
                attention_case(generator, {length, length, 3, 1, 64}, {{0, length, 0, length, causal}});
            check_forward(c);
            check_backward(generator, c);
            if (HasFatalFailure()) FAIL() << "length " << length << " causal " << causal;
        }
    }
}

TEST(Attention, RandomSegmentsHeadsAndDims) {
    std::mt19937 generator(2);
    const std::int64_t heads[][2] = {{1, 1}, {2, 1}, {4, 2}, {9, 3}, {7, 7}, {50, 1}};
    const std::int64_t dims[] = {1, 4, 8, 16, 20, 32, 64, 80, 128};
    for (int round = 0; round < 60; ++round) {
        const auto& [h, kv] = heads[round % 6];
        const std::int64_t d = dims[round % 9];
        const AttentionDims shape{1 + static_cast<std::int64_t>(generator() % 120),
                                  1 + static_cast<std::int64_t>(generator() % 200), h, kv, d};
        const DType dtype = round % 4 == 3 ? DType::bfloat16 : DType::float32;
        const AttentionCase c = attention_case(generator, shape, random_segments(generator, shape), dtype);
        check_forward(c, round % 8 == 3 ? DType::bfloat16 : DType::float32);
        check_backward(generator, c);
        if (HasFatalFailure()) FAIL() << "round " << round;
    }
}

TEST(Attention, BackwardMatchesFiniteDifferences) {
    std::mt19937 generator(3);
    const AttentionDims dims{7, 9, 2, 1, 4};
    const AttentionCase c = attention_case(generator, dims, {{0, 4, 0, 6, true}, {4, 3, 5, 4, false}});
    Stream stream = Stream::make_inline();
    const Outputs f = forward(c);
    const Tensor dout = random_tensor(generator, c.q.shape());
    const Tensor delta = zeros({2, 7});
    ops::attention_delta(stream, dout, f.out, delta);
    const Tensor dq = zeros(c.q.shape()), dk = zeros(c.k.shape()), dv = zeros(c.v.shape());
    ops::attention_backward(stream, dout, c.q, c.k, c.v, f.lse, delta, c.segments, c.scale, dq, dk, dv);
    const Doubles q = to_doubles(c.q), k = to_doubles(c.k), v = to_doubles(c.v), w = to_doubles(dout);
    const auto run = [&](const Doubles& a, const Doubles& b, const Doubles& e) {
        return testing::naive_attention(dims, a, b, e, c.segments, static_cast<double>(c.scale)).out;
    };
    using testing::finite_differences;
    expect_close(dq, finite_differences([&](const Doubles& x) { return run(x, k, v); }, q, w), 1e-5, "dq");
    expect_close(dk, finite_differences([&](const Doubles& x) { return run(q, x, v); }, k, w), 1e-5, "dk");
    expect_close(dv, finite_differences([&](const Doubles& x) { return run(q, k, x); }, v, w), 1e-5, "dv");
}

TEST(Attention, QueriesWithoutKeysAndEmptySegments) {
    std::mt19937 generator(4);
    // 5 queries on 3 keys, causal: the first two see nothing; rows 5..7 meet no keys at all; row 8 is in no
    // segment
    const AttentionCase c = attention_case(generator, {9, 6, 2, 1, 16},
                                           {{0, 5, 0, 3, true}, {5, 3, 4, 0, true}, {8, 0, 0, 6, true}});
    const Outputs f = forward(c);
    for (const std::int64_t row : {0, 1, 5, 6, 7, 8}) {
        for (std::int64_t i = 0; i < 32; ++i) EXPECT_EQ(f.out.data<float>()[row * 32 + i], 0.0f);
        for (std::int64_t h = 0; h < 2; ++h) {
            EXPECT_EQ(f.lse.data<float>()[h * 9 + row], -std::numeric_limits<float>::infinity());
        }
    }
    check_forward(c);
    check_backward(generator, c);
    const AttentionCase none = attention_case(generator, {3, 0, 2, 1, 16}, {});
    check_forward(none);
}

TEST(Attention, LargeScoresStayFinite) {
    std::mt19937 generator(5);
    AttentionCase c = attention_case(generator, {70, 70, 1, 1, 32}, {{0, 70, 0, 70, true}});
    c.scale = 40.0f;
    const auto wanted = testing::naive_attention(c.dims, to_doubles(c.q), to_doubles(c.k), to_doubles(c.v),
                                                 c.segments, static_cast<double>(c.scale));
    // fp32 scores of size 1000 are right to about 1e-4
    const Outputs got = forward(c);
    expect_close(got.out, wanted.out, 2e-3, "out");
    expect_close(got.lse, wanted.lse, 1e-5, "lse");
}

// Ring attention: blocks of keys apart, merged; the backward in blocks with the final lse and delta.
TEST(Attention, BlocksMergeToTheWhole) {
    std::mt19937 generator(6);
    Stream stream = Stream::make_inline();
    const AttentionCase c = attention_case(generator, {100, 100, 4, 2, 32}, {{0, 100, 0, 100, true}});
    const Outputs whole = forward(c);
    const std::vector<std::vector<AttentionSegment>> blocks = {
        {{40, 60, 30, 70, true}},                        // the later queries' own end, bottom-right aligned
        {{0, 30, 0, 30, true}, {40, 60, 0, 30, false}},  // rows 30..39 not yet
        {{30, 10, 0, 40, true}},
    };
    const Tensor out = zeros(c.q.shape());
    const Tensor lse = zeros({4, 100});
    const Tensor rounded = zeros(c.q.shape(), DType::bfloat16);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        ops::attention_forward(stream, c.q, c.k, c.v, blocks[i], c.scale, out, lse,
                               {.merge = i > 0, .rounded = rounded});
    }
    expect_close(out, to_doubles(whole.out), 1e-5, "merged out");
    expect_close(lse, to_doubles(whole.lse), 1e-5, "merged lse");
    const Tensor narrowed = zeros(c.q.shape(), DType::bfloat16);
    ops::cast(stream, out, narrowed);
    testing::expect_same_bits(rounded, narrowed, "rounded");

    const Tensor dout = random_tensor(generator, c.q.shape());
    const Tensor delta = zeros({4, 100});
    ops::attention_delta(stream, dout, out, delta);
    const Tensor dq = zeros(c.q.shape()), dk = zeros(c.k.shape()), dv = zeros(c.v.shape());
    for (const auto& block : blocks) {
        ops::attention_backward(stream, dout, c.q, c.k, c.v, lse, delta, block, c.scale, dq, dk, dv);
    }
    const auto wanted =
        testing::naive_attention_backward(c.dims, to_doubles(c.q), to_doubles(c.k), to_doubles(c.v),
                                          to_doubles(dout), c.segments, static_cast<double>(c.scale));
    expect_close(dq, wanted.dq, 2e-5, "dq", 5e-6);
    expect_close(dk, wanted.dk, 2e-5, "dk", 5e-6);
    expect_close(dv, wanted.dv, 2e-5, "dv", 5e-6);
}

// One key of one number: its value is the result.
TEST(Attention, MergesRowsThatSeeKeys) {
    Stream stream = Stream::make_inline();
    const auto column = [](std::vector<float> values) {
        const auto rows = static_cast<std::int64_t>(values.size());
        return Tensor::from<float>(values, {rows, 1, 1});
    };
    const Tensor q = column({0, 0, 0, 0, 0}), k = column({1}), v = column({7});
    const Tensor out = column({3, 0, 5, 0, 6});
    const Tensor lse = Tensor::from<float>(std::vector<float>{2, kNothing, 0, kNothing, 1}, {1, 5});
    const Tensor rounded = column({9, 9, 9, 9, 9});
    const Tensor narrow = zeros({5, 1, 1}, DType::bfloat16);
    ops::cast(stream, rounded, narrow);
    // Rows 0 and 1 see nothing, 2 and 3 the key, 4 is in no segment.
    ops::attention_forward(stream, q, k, v, {{0, 3, 0, 1, true}, {3, 1, 0, 1, true}}, 1.0f, out, lse,
                           {.merge = true, .rounded = narrow});
    EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{3, 0, 6, 7, 6}));
    EXPECT_EQ(lse.to_vector<float>(), (std::vector<float>{2, kNothing, std::log(2.0f), 0, 1}));
    EXPECT_EQ(to_doubles(narrow), (Doubles{3, 0, 6, 7, 9}));
    // Written, the rows in no segment are nothing in both.
    ops::attention_forward(stream, q, k, v, {{0, 3, 0, 1, true}}, 1.0f, out, lse, {.rounded = narrow});
    EXPECT_EQ(to_doubles(narrow), (Doubles{0, 0, 7, 0, 0}));
    EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{0, 0, 7, 0, 0}));
}

TEST(Attention, ThreadsGiveTheSameBits) {
    std::mt19937 generator(7);
    Stream stream = Stream::make_inline();
    const AttentionCase c =
        attention_case(generator, {150, 150, 6, 3, 32}, {{0, 70, 0, 90, true}, {70, 80, 20, 130, false}});
    const Tensor dout = random_tensor(generator, c.q.shape());
    std::vector<Tensor> first;
    for (const int threads : {1, 3}) {
        ops::set_compute_threads(threads);
        const Outputs f = forward(c);
        const Tensor delta = zeros({6, 150});
        ops::attention_delta(stream, dout, f.out, delta);
        const Tensor dq = zeros(c.q.shape()), dk = zeros(c.k.shape()), dv = zeros(c.v.shape());
        ops::attention_backward(stream, dout, c.q, c.k, c.v, f.lse, delta, c.segments, c.scale, dq, dk, dv);
        const std::vector<Tensor> all = {f.out, f.lse, dq, dk, dv};
        if (first.empty()) first = all;
        for (std::size_t i = 0; i < all.size(); ++i)
            testing::expect_same_bits(all[i], first[i], "three threads");
    }
    ops::set_compute_threads(1);
}

TEST(Attention, RefusesWhatDoesNotFit) {
    Stream stream = Stream::make_inline();
    const Tensor q = zeros({4, 6, 8}), k = zeros({5, 3, 8}), out = zeros({4, 6, 8}), lse = zeros({6, 4});
    const auto run = [&](const std::vector<AttentionSegment>& segments, const Tensor& keys) {
        ops::attention_forward(stream, q, keys, keys, segments, 1.0f, out, lse);
    };
    EXPECT_NO_THROW(run({{0, 4, 0, 5, true}}, k));
    EXPECT_THROW(run({{0, 5, 0, 5, true}}, k), InvalidArgument);
    EXPECT_THROW(run({{0, 4, 1, 5, true}}, k), InvalidArgument);
    EXPECT_THROW(run({{-1, 2, 0, 5, true}}, k), InvalidArgument);
    EXPECT_THROW(run({{0, 3, 0, 5, true}, {2, 2, 0, 5, true}}, k), InvalidArgument);
    EXPECT_THROW(run({}, zeros({5, 4, 8})), InvalidArgument);
    EXPECT_THROW(run({}, zeros({5, 3, 7})), InvalidArgument);
    EXPECT_THROW(run({}, zeros({5, 3, 8}, DType::bfloat16)), InvalidArgument);
    const auto write = [&](const Tensor& to, const ops::ForwardWrites& writes) {
        ops::attention_forward(stream, q, k, k, {}, 1.0f, to, lse, writes);
    };
    const Tensor narrow = zeros({4, 6, 8}, DType::bfloat16);
    EXPECT_NO_THROW(write(out, {.merge = true, .rounded = narrow}));
    EXPECT_THROW(write(out, {.rounded = out}), InvalidArgument);
    EXPECT_THROW(write(out, {.rounded = zeros({4, 6, 7}, DType::bfloat16)}), InvalidArgument);
    const Tensor narrow_q = zeros({4, 6, 8}, DType::bfloat16), narrow_k = zeros({5, 3, 8}, DType::bfloat16);
    EXPECT_THROW(
        ops::attention_forward(stream, narrow_q, narrow_k, narrow_k, {}, 1.0f, narrow, lse, {.merge = true}),
        InvalidArgument);
    EXPECT_THROW(ops::packed_segments({0, 3, 2}), InvalidArgument);
    EXPECT_THROW(ops::paged_attention_decode(stream, q, zeros({2, 4, 3, 8}), zeros({2, 4, 3, 8}),
                                             {{0}, {1}, {2}, {0}}, {1, 1, 1, 1}, 1.0f, out),
                 InvalidArgument);
    EXPECT_THROW(ops::paged_attention_decode(stream, q, zeros({2, 4, 3, 8}), zeros({2, 4, 3, 8}),
                                             {{0}, {1}, {0}, {0}}, {1, 1, 5, 1}, 1.0f, out),
                 InvalidArgument);
}

}  // namespace
}  // namespace tandem
