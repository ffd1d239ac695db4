// The kernels of attention's forward by pairs: queries in lanes, queries in rows and the same from plain C++ have the
// same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/ops/cpu/instruction_sets.h"
#include "common/ops/shared/bits.h"
#include "tests/unit/common/ops/forward_pairs_here.h"

namespace tandem {
namespace {

using namespace ops::detail;
using testing::kForwardPairsEmulated;

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// Two tiles of keys, the second short, and queries that see all of them.
struct PairInputs {
    PairInputs(std::mt19937& generator, std::int64_t dim, std::int64_t second)
        : head_dim(dim), keys{kKeyTile, second} {
        std::normal_distribution<float> normal;
        for (std::vector<std::uint16_t>* rows : {&q, &k, &v}) {
            rows->resize(static_cast<std::size_t>(2 * kKeyTile * dim));
            for (std::uint16_t& x : *rows) x = ops::shared::bfloat16_bits(normal(generator));
        }
    }
    std::vector<const std::uint16_t*> rows_of(const std::vector<std::uint16_t>& of, int tile) const {
        std::vector<const std::uint16_t*> rows;
        for (std::int64_t j = 0; j < kKeyTile; ++j) rows.push_back(&of[0] + (tile * kKeyTile + j) * head_dim);
        return rows;
    }
    std::int64_t head_dim;
    std::int64_t keys[2];
    std::vector<std::uint16_t> q, k, v;
};

struct PairSums {
    std::vector<float> rows, max, sum;  // rows [queries, width]
    bool operator==(const PairSums& other) const {
        const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
            return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
        };
        return same(rows, other.rows) && same(max, other.max) && same(sum, other.sum);
    }
};

PairSums by_lanes(const ForwardPairs& kernels, const PairInputs& in, std::int64_t queries,
                  std::int64_t visible_step) {
    const auto dim = static_cast<std::size_t>(in.head_dim);
    const std::size_t width = (dim + 15) / 16 * 16, lanes = kLaneQueries;
    std::vector<std::uint32_t> q(static_cast<std::size_t>(lane_pairs(in.head_dim)) * lanes),
        v_t(dim * kKeyTile / 2), p(kKeyTile / 2 * lanes);
    std::vector<float> acc(dim * lanes, 0.0f), scores(kKeyTile * lanes);
    PairSums result{std::vector<float>(static_cast<std::size_t>(queries) * width, 0.0f),
                    std::vector<float>(lanes, kUnseen), std::vector<float>(lanes, 0.0f)};
    kernels.pack_lanes(in.q.data(), in.head_dim, queries, in.head_dim, 0x80008000U, q.data());
    for (int tile = 0; tile < 2; ++tile) {
        const auto k = in.rows_of(in.k, tile), v = in.rows_of(in.v, tile);
        kernels.pack_values(v.data(), in.keys[tile], in.head_dim, v_t.data());
        const std::int64_t first = visible_step == 0 ? in.keys[tile] : 5 - 30 * tile;
        kernels.lanes_tile({q.data(), k.data(), v_t.data(), acc.data(), result.max.data(), result.sum.data(),
                            scores.data(), p.data(), queries, in.head_dim, first, visible_step, in.keys[tile],
                            0.3f});
    }
    kernels.unpack_lanes(acc.data(), queries, in.head_dim, static_cast<std::int64_t>(width),
                         result.rows.data());
    for (std::size_t row = 0; row < static_cast<std::size_t>(queries); ++row)  // the padding is not said
        std::fill(result.rows.begin() + static_cast<std::ptrdiff_t>(row * width + dim),
                  result.rows.begin() + static_cast<std::ptrdiff_t>((row + 1) * width), 0.0f);
    result.max.resize(static_cast<std::size_t>(queries));
    result.sum.resize(static_cast<std::size_t>(queries));
    return result;
}

// Rows `stride` numbers apart, NaN between them.
std::vector<std::uint16_t> apart(const std::vector<std::uint16_t>& rows, std::int64_t head_dim,
                                 std::int64_t stride) {
    std::vector<std::uint16_t> result(static_cast<std::size_t>(2 * kKeyTile * stride), std::uint16_t{0xffff});
    for (std::int64_t row = 0; row < 2 * kKeyTile; ++row)
        std::copy_n(rows.begin() + row * head_dim, head_dim, result.begin() + row * stride);
    return result;
}

PairSums by_rows(const ForwardPairs& kernels, const PairInputs& in, std::int64_t queries,
                 std::int64_t stride) {
    const auto dim = static_cast<std::size_t>(in.head_dim), n = static_cast<std::size_t>(queries);
    const std::size_t width = (dim + 15) / 16 * 16, wide = static_cast<std::size_t>(row_width(in.head_dim));
    std::vector<std::uint32_t> q(n * dim / 2 + 16);
    for (std::size_t i = 0; i < n * dim / 2; ++i) {
        std::memcpy(&q[i], &in.q[2 * i], 4);
        q[i] ^= 0x80008000U;
    }
    std::vector<float> acc(n * wide, 0.0f), row(wide);
    PairSums result{std::vector<float>(n * width, 0.0f), std::vector<float>(n, kUnseen),
                    std::vector<float>(n, 0.0f)};
    const std::vector<std::uint16_t> all_k = apart(in.k, in.head_dim, stride),
                                     all_v = apart(in.v, in.head_dim, stride);
    for (int tile = 0; tile < 2; ++tile) {
        const std::uint16_t *k[kKeyVectors], *v[kKeyVectors];
        for (std::int64_t j = 0; j < in.keys[tile]; j += kKeyRows) {
            k[j / kKeyRows] = &all_k[0] + (tile * kKeyTile + j) * stride;
            v[j / kKeyRows] = &all_v[0] + (tile * kKeyTile + j) * stride;
        }
        kernels.rows_tile({q.data(), k, v, stride, acc.data(), result.max.data(), result.sum.data(), queries,
                           in.head_dim, in.keys[tile], 0.3f});
    }
    for (std::size_t i = 0; i < n; ++i) {
        kernels.unpack_row(&acc[i * wide], in.head_dim, row.data());
        std::copy_n(row.begin(), dim, result.rows.begin() + static_cast<std::ptrdiff_t>(i * width));
    }
    return result;
}

TEST(ForwardPairs, LanesRowsAndPlainCppAgreeInEveryBit) {
    std::mt19937 generator(1);
    for (const std::int64_t head_dim : {2, 20, 32, 64, 66, 96, 128}) {
        for (const std::int64_t second : {1, 2, 17, 63, 64}) {
            const PairInputs in(generator, head_dim, second);
            for (const std::int64_t queries : {1, 3, 4, 6, 17, 64}) {
                SCOPED_TRACE(::testing::Message()
                             << queries << " queries of " << head_dim << ", 64 and " << second << " keys");
                const PairSums all = by_lanes(kForwardPairsEmulated, in, queries, 0);
                const PairSums causal = by_lanes(kForwardPairsEmulated, in, queries, 1);
                for (const std::int64_t stride : {head_dim, head_dim + 6, kLineStride}) {
                    ASSERT_TRUE(by_rows(kForwardPairsEmulated, in, queries, stride) == all) << stride;
                    if (!runs_avx512_bf16()) continue;
                    ASSERT_TRUE(by_rows(kForwardPairs, in, queries, stride) == all) << stride;
                }
                if (!runs_avx512_bf16()) continue;
                ASSERT_TRUE(by_lanes(kForwardPairs, in, queries, 0) == all);
                ASSERT_TRUE(by_lanes(kForwardPairs, in, queries, 1) == causal);
            }
        }
    }
}

// Keys past the last lie where NaN is, in either operand.
TEST(ForwardPairs, WhatIsNoKeyDoesNotCount) {
    std::mt19937 generator(2);
    for (const std::int64_t second : {1, 17, 63}) {
        const PairInputs in(generator, 64, second);
        PairInputs broken = in;
        for (std::vector<std::uint16_t>* rows : {&broken.k, &broken.v})
            std::fill(rows->begin() + (kKeyTile + second) * 64, rows->end(), std::uint16_t{0xffff});
        for (const ForwardPairs* kernels : {&kForwardPairsEmulated, &kForwardPairs}) {
            if (kernels == &kForwardPairs && !runs_avx512_bf16()) continue;
            EXPECT_TRUE(by_lanes(*kernels, broken, 9, 0) == by_lanes(*kernels, in, 9, 0)) << second;
            for (const std::int64_t stride : {std::int64_t{64}, kLineStride})
                EXPECT_TRUE(by_rows(*kernels, broken, 9, stride) == by_rows(*kernels, in, 9, stride))
                    << second;
        }
    }
}

}  // namespace
}  // namespace tandem
