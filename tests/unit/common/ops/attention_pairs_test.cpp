// Attention of bfloat16, which a CPU with AVX512-BF16 multiplies as pairs (and attention_pairs_emulated multiplies so on
// any machine): against fp64 beside plain bfloat16 arithmetic, and the bits of a row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "common/ops/attention.h"
#include "common/ops/matmul.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using ops::AttentionSegment;
using testing::AttentionCase;
using testing::AttentionDims;
using testing::expect_same_bits;
using testing::random_tensor;
using testing::to_doubles;
using testing::zeros;

AttentionCase pairs_case(std::mt19937& generator, const AttentionDims& dims,
                         std::vector<AttentionSegment> segments) {
    return testing::attention_case(generator, dims, std::move(segments), DType::bfloat16);
}

struct PairsOutputs {
    Tensor out, lse;
};

PairsOutputs forward_of(const AttentionCase& c, DType out_dtype) {
    Stream stream = Stream::make_inline();
    PairsOutputs r{zeros(c.q.shape(), out_dtype), zeros({c.dims.heads, c.dims.q_rows})};
    ops::attention_forward(stream, c.q, c.k, c.v, c.segments, c.scale, r.out, r.lse);
    return r;
}

void expect_right(const AttentionCase& c, DType out_dtype) {
    const auto naive = [&](bool rounded) {
        return testing::naive_attention(c.dims, to_doubles(c.q), to_doubles(c.k), to_doubles(c.v), c.segments,
                                        static_cast<double>(c.scale), rounded);
    };
    const auto wanted = naive(false);
    const PairsOutputs found = forward_of(c, out_dtype);
    testing::expect_within_plain(found.out, wanted.out, naive(true).out, "out", 2.0);
    testing::expect_close(found.lse, wanted.lse, 1e-5, "lse");
}

// --- against fp64 ---

TEST(AttentionPairs, RandomSegmentsAgainstFp64) {
    std::mt19937 generator(1);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, std::max(low, high))(generator);
    };
    constexpr std::int64_t kHeadDims[] = {64, 2, 32, 96, 128, 8, 20, 256, 72, 34, 136};
    for (int round = 0; round < 66; ++round) {
        AttentionDims dims{pick(1, 150), pick(1, 200), 0, pick(1, 2), kHeadDims[round % 11]};
        dims.heads = dims.kv_heads * pick(1, 2);
        std::vector<AttentionSegment> segments;  // disjoint rows of q with gaps; keys may overlap
        for (std::int64_t at = pick(0, 3); at < dims.q_rows;) {
            const std::int64_t q_len = pick(1, dims.q_rows - at), k_begin = pick(0, dims.k_rows / 3);
            segments.push_back({at, q_len, k_begin, pick(0, dims.k_rows - k_begin), pick(0, 2) > 0});
            at += q_len + pick(0, 3);
        }
        AttentionCase c = pairs_case(generator, dims, segments);
        if (round % 5 < 2) c.scale *= 5;  // so that maxima move
        if (round % 7 == 3) c.scale *= -1;
        expect_right(c, round % 2 == 0 ? DType::bfloat16 : DType::float32);
        if (HasFatalFailure()) FAIL() << "round " << round;
    }
}

TEST(AttentionPairs, EveryLengthAroundTiles) {
    std::mt19937 generator(2);
    for (const std::int64_t length : {1, 2, 3, 15, 16, 17, 31, 33, 48, 63, 64, 65, 127, 129, 200}) {
        for (const bool causal : {true, false}) {
            expect_right(pairs_case(generator, {length, length, 1, 1, 64}, {{0, length, 0, length, causal}}),
                         DType::float32);
            if (HasFatalFailure()) FAIL() << "length " << length << " causal " << causal;
        }
    }
}

TEST(AttentionPairs, AScaleOfNothingSeesAllKeysAlike) {
    std::mt19937 generator(3);
    AttentionCase c = pairs_case(generator, {70, 70, 2, 1, 32}, {{0, 70, 0, 70, true}});
    c.scale = 0.0f;
    expect_right(c, DType::float32);
    c.q = random_tensor(generator, c.q.shape(), DType::bfloat16, 30.0f);  // and large scores stay finite
    c.scale = 1.0f;
    expect_right(c, DType::float32);
}

// Ring attention: keys in blocks, merged.
TEST(AttentionPairs, BlocksMergeToTheWhole) {
    std::mt19937 generator(4);
    Stream stream = Stream::make_inline();
    const AttentionCase c = pairs_case(generator, {100, 100, 4, 2, 32}, {{0, 100, 0, 100, true}});
    const std::vector<std::vector<AttentionSegment>> blocks = {
        {{40, 60, 30, 70, true}}, {{0, 30, 0, 30, true}, {40, 60, 0, 30, false}}, {{30, 10, 0, 40, true}}};
    const Tensor out = zeros(c.q.shape()), lse = zeros({4, 100});
    for (std::size_t i = 0; i < blocks.size(); ++i)
        ops::attention_forward(stream, c.q, c.k, c.v, blocks[i], c.scale, out, lse, {.merge = i > 0});
    const auto naive = [&](bool rounded) {
        return testing::naive_attention(c.dims, to_doubles(c.q), to_doubles(c.k), to_doubles(c.v), c.segments,
                                        static_cast<double>(c.scale), rounded);
    };
    testing::expect_within_plain(out, naive(false).out, naive(true).out, "merged", 2.0);
    testing::expect_close(lse, naive(false).lse, 1e-5, "merged lse");
}

// --- bits ---

// Queries [begin, end) of the first `end` positions.
Tensor rows_of_piece(const AttentionCase& c, std::int64_t begin, std::int64_t end) {
    AttentionCase piece = c;
    piece.dims.q_rows = end - begin;
    piece.dims.k_rows = end;
    piece.segments = {{0, end - begin, 0, end, true}};
    piece.q = c.q.rows(begin, end - begin);
    piece.k = c.k.rows(0, end);
    piece.v = c.v.rows(0, end);
    return forward_of(piece, DType::float32).out;
}

// The keys and values in shuffled pages; slots of no position hold NaN.
struct PoisonedPages {
    PoisonedPages(const AttentionCase& c, std::int64_t page_size)
        : table(static_cast<std::size_t>((c.dims.k_rows + page_size - 1) / page_size)) {
        std::mt19937 generator(3);
        std::iota(table.begin(), table.end(), 1);  // page 0 belongs to nobody
        std::shuffle(table.begin(), table.end(), generator);
        k = paged(c.k, page_size);
        v = paged(c.v, page_size);
    }
    Tensor paged(const Tensor& rows, std::int64_t page_size) const {
        const Tensor cache =
            zeros({static_cast<std::int64_t>(table.size()) + 1, page_size, rows.dim(1), rows.dim(2)},
                  DType::bfloat16);
        std::memset(cache.raw(), 0xff, cache.bytes());
        const std::size_t bytes = rows.bytes() / static_cast<std::size_t>(rows.dim(0));
        for (std::int64_t i = 0; i < rows.dim(0); ++i) {
            const std::int64_t slot =
                table[static_cast<std::size_t>(i / page_size)] * page_size + i % page_size;
            std::memcpy(cache.raw() + static_cast<std::size_t>(slot) * bytes, rows.rows(i, 1).raw(), bytes);
        }
        return cache;
    }
    std::vector<std::int32_t> table;
    Tensor k, v;
};

// Decode of the last row of `length` positions; `last` of them, the others are NaN.
Tensor decoded(const AttentionCase& c, const std::vector<std::int32_t>& lengths, std::int64_t page_size) {
    Stream stream = Stream::make_inline();
    const auto batch = static_cast<std::int64_t>(lengths.size());
    const Tensor q = zeros({batch, c.dims.heads, c.dims.head_dim}, DType::bfloat16);
    for (std::int64_t b = 0; b < batch; ++b) {
        const Tensor from = c.q.rows(lengths[static_cast<std::size_t>(b)] - 1, 1);
        std::memcpy(q.rows(b, 1).raw(), from.raw(), from.bytes());
    }
    const Tensor out = zeros(q.shape());
    const PoisonedPages pages(c, page_size);
    ops::paged_attention_decode(stream, q, pages.k, pages.v,
                                std::vector<std::vector<std::int32_t>>(lengths.size(), pages.table), lengths,
                                c.scale, out);
    return out;
}

// A row of decode after a sequence of exactly its length, behind which the page holds NaN.
void expect_decode_alone(const AttentionCase& c, const Tensor& whole, std::int64_t length,
                         std::int64_t page_size) {
    AttentionCase cut = c;
    cut.dims.k_rows = length;
    cut.k = c.k.rows(0, length);
    cut.v = c.v.rows(0, length);
    expect_same_bits(decoded(cut, {static_cast<std::int32_t>(length)}, page_size), whole.rows(length - 1, 1),
                     "decode alone");
}

AttentionCase sequence(std::int64_t rows, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
    std::mt19937 generator(static_cast<std::uint32_t>(rows * 1000 + head_dim));
    AttentionCase c =
        pairs_case(generator, {rows, rows, heads, kv_heads, head_dim}, {{0, rows, 0, rows, true}});
    c.scale *= 4;  // so that maxima move
    return c;
}

class PairsBits : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(PairsBits, PrefixesChunksAndPacking) {
    const std::int64_t rows = 133;
    const AttentionCase c = sequence(rows, 2, 1, GetParam());
    const Tensor whole = forward_of(c, DType::float32).out;
    for (const std::int64_t n : {1, 2, 15, 16, 17, 33, 63, 64, 65, 66, 80, 127, 128, 129, 131}) {
        expect_same_bits(rows_of_piece(c, 0, n), whole.rows(0, n), "prefix");
        expect_same_bits(rows_of_piece(c, n / 3, n), whole.rows(n / 3, n - n / 3), "chunk");
        expect_same_bits(rows_of_piece(c, n - 1, n), whole.rows(n - 1, 1), "a row alone");
        if (HasFatalFailure()) FAIL() << n << " positions";
    }
    AttentionCase packed = c;
    packed.segments = {{0, 37, 0, 37, true}, {37, 96, 37, 96, true}};
    AttentionCase behind = sequence(96, 2, 1, GetParam());
    behind.q = c.q.rows(37, 96);
    behind.k = c.k.rows(37, 96);
    behind.v = c.v.rows(37, 96);
    behind.scale = c.scale;
    expect_same_bits(forward_of(packed, DType::float32).out.rows(37, 96),
                     forward_of(behind, DType::float32).out, "packed");
}

TEST_P(PairsBits, DecodeOverAnyPages) {
    const std::int64_t rows = 131;
    const AttentionCase c = sequence(rows, 6, 2, GetParam());
    const Tensor whole = forward_of(c, DType::float32).out;
    const std::vector<std::int32_t> lengths = {1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 131};
    for (const std::int64_t page_size : {1, 8, 16, 64}) {
        for (const int threads : {1, 3}) {
            ops::set_compute_threads(threads);
            const Tensor out = decoded(c, lengths, page_size);
            ops::set_compute_threads(1);
            for (std::size_t b = 0; b < lengths.size(); ++b) {
                expect_same_bits(out.rows(static_cast<std::int64_t>(b), 1), whole.rows(lengths[b] - 1, 1),
                                 "decode");
            }
            if (HasFatalFailure()) FAIL() << "pages of " << page_size << ", " << threads << " threads";
        }
        for (const std::int64_t length : {1, 17, 63, 65, 131})
            expect_decode_alone(c, whole, length, page_size);
        if (HasFatalFailure()) FAIL() << "pages of " << page_size;
    }
}

TEST_P(PairsBits, PrefillInAnyPieces) {
    Stream stream = Stream::make_inline();
    const std::int64_t rows = 133;
    const AttentionCase c = sequence(rows, 4, 2, GetParam());
    const Tensor whole = forward_of(c, DType::float32).out;
    for (const std::int64_t page_size : {1, 8, 16, 64}) {
        const PoisonedPages pages(c, page_size);
        for (const std::int64_t length : {133, 64, 41, 9, 1}) {
            if (length == 1 && page_size != 16) continue;
            std::vector<ops::PagedSegment> pieces;
            for (std::int64_t at = 0; at < rows; at += length) {
                const std::int64_t count = std::min(length, rows - at);
                pieces.push_back({at, count, at + count, pages.table});
            }
            std::reverse(pieces.begin(), pieces.end());
            const Tensor out = zeros(c.q.shape());
            ops::set_compute_threads(length == 41 ? 3 : 1);
            ops::paged_attention_prefill(stream, c.q, pages.k, pages.v, pieces, c.scale, out);
            ops::set_compute_threads(1);
            expect_same_bits(out, whole, "prefill");
            if (HasFatalFailure()) FAIL() << "pages of " << page_size << ", pieces of " << length;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, PairsBits, ::testing::Values(2, 20, 32, 64, 96, 128, 256),
                         [](const auto& info) { return "of" + std::to_string(info.param); });

// More heads share keys than one block of rows holds, than lie in rows at all, and than one tile.
TEST(AttentionPairs, DecodeOfLargeGroups) {
    for (const std::int64_t group : {5, 16, 17, 70}) {
        const AttentionCase c = sequence(67, group, 1, 32);
        const Tensor whole = forward_of(c, DType::float32).out;
        for (const std::int64_t page_size : {8, 32})
            expect_same_bits(decoded(c, {67}, page_size), whole.rows(66, 1), "a large group");
    }
}

TEST(AttentionPairs, RoundedResultsAreTheSameRounded) {
    const AttentionCase c = sequence(90, 2, 1, 64);
    const Tensor wide = forward_of(c, DType::float32).out, narrow = forward_of(c, DType::bfloat16).out;
    for (std::int64_t i = 0; i < wide.numel(); ++i)
        ASSERT_EQ(float(narrow.data<bfloat16>()[i]), float(bfloat16(wide.data<float>()[i])));
}

// What none of the segments may see is NaN: it changes no bit.
TEST(AttentionPairs, NeighboursDoNotMatter) {
    std::mt19937 generator(6);
    for (const std::int64_t head_dim : {20, 64, 96, 128}) {
        SCOPED_TRACE(head_dim);
        AttentionCase c = pairs_case(generator, {150, 170, 2, 1, head_dim},
                                     {{3, 70, 5, 70, true}, {80, 65, 90, 69, false}});
        const PairsOutputs clean = forward_of(c, DType::float32);
        const auto poison = [](const Tensor& rows, std::int64_t begin, std::int64_t end) {
            const Tensor chosen = rows.rows(begin, end - begin);
            std::memset(chosen.raw(), 0xff, chosen.bytes());
        };
        for (const Tensor& keys : {c.k, c.v}) {
            poison(keys, 0, 5);
            poison(keys, 75, 90);
            poison(keys, 159, 170);
        }
        poison(c.q, 0, 3);
        poison(c.q, 73, 80);
        poison(c.q, 145, 150);
        const PairsOutputs found = forward_of(c, DType::float32);
        expect_same_bits(found.out, clean.out, "out");
        expect_same_bits(found.lse, clean.lse, "lse");
    }
}

// NaN that wider heads left in memory, where the padding of these lies.
TEST(AttentionPairs, WhatAnotherHeadDimLeftDoesNotCount) {
    AttentionCase all_nan = sequence(64, 2, 1, 256);
    for (const Tensor& tensor : {all_nan.q, all_nan.k, all_nan.v})
        std::memset(tensor.raw(), 0xff, tensor.bytes());
    for (const std::int64_t head_dim : {2, 20, 64, 96}) {
        const AttentionCase c = sequence(45, 2, 1, head_dim);
        const Tensor wanted = forward_of(c, DType::float32).out, last = decoded(c, {45}, 8);
        forward_of(all_nan, DType::float32);
        expect_same_bits(forward_of(c, DType::float32).out, wanted, "after NaN");
        decoded(all_nan, {64}, 8);
        expect_same_bits(decoded(c, {45}, 8), last, "decode after NaN");
        EXPECT_FALSE(std::isnan(wanted.data<float>()[0])) << head_dim;
    }
}

// A key of NaN is NaN for the rows that see it, and for no other.
TEST(AttentionPairs, NaNReachesWhoSeesIt) {
    const AttentionCase c = sequence(140, 1, 1, 64);
    const Tensor before = forward_of(c, DType::float32).out;
    AttentionCase broken = c;
    broken.k = c.k.clone("test");
    broken.k.data<bfloat16>()[100 * 64 + 5] = bfloat16(std::numeric_limits<float>::quiet_NaN());
    const Tensor out = forward_of(broken, DType::float32).out;
    expect_same_bits(out.rows(0, 100), before.rows(0, 100), "rows before");
    for (std::int64_t row = 100; row < 140; ++row)
        EXPECT_TRUE(std::isnan(out.data<float>()[row * 64])) << row;
    EXPECT_TRUE(std::isnan(decoded(broken, {101}, 8).data<float>()[3]));
    expect_same_bits(decoded(broken, {100}, 8), before.rows(99, 1), "decode before");
}

}  // namespace
}  // namespace tandem
