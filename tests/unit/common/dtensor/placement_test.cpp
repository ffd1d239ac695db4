// The chunk rule, strided shards, layouts and placement words against the golden tables.
#include "common/dtensor/placement.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "common/dtensor/layout.h"
#include "common/error.h"
#include "tests/unit/common/dtensor/oracle.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using R = tandem::Run;  // gtest has a Run of its own inside tests
using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

template <typename Call>
void expect_refused(const Call& call, const std::string& part) {
    EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr(part)));
}

TEST(ShardRange, GoldenSizesAndOffsets) {
    struct Case {
        std::int64_t n, k;
        Pairs expected;  // size, offset
        std::int64_t padding;
    };
    const std::vector<Case> cases = {
        {10, 4, {{3, 0}, {3, 3}, {3, 6}, {1, 9}}, 2},
        {5, 4, {{2, 0}, {2, 2}, {1, 4}, {0, 5}}, 3},
        {3, 4, {{1, 0}, {1, 1}, {1, 2}, {0, 3}}, 1},
        {2, 4, {{1, 0}, {1, 1}, {0, 2}, {0, 2}}, 2},
        {9, 4, {{3, 0}, {3, 3}, {3, 6}, {0, 9}}, 3},
        {7, 8, {{1, 0}, {1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}, {1, 6}, {0, 7}}, 1},
        {1, 2, {{1, 0}, {0, 1}}, 1},
        {4, 4, {{1, 0}, {1, 1}, {1, 2}, {1, 3}}, 0},
        {0, 3, {{0, 0}, {0, 0}, {0, 0}}, 0},
    };
    for (const Case& c : cases) {
        Pairs got;
        for (std::int64_t r = 0; r < c.k; ++r)
            got.emplace_back(shard_range(c.n, c.k, r).size, shard_range(c.n, c.k, r).offset);
        EXPECT_EQ(got, c.expected) << c.n << " over " << c.k;
        EXPECT_EQ(padded_shard_size(c.n, c.k) * c.k - c.n, c.padding) << c.n << " over " << c.k;
    }
}

// Eight rows on (dp 2, tp 2), rank = dp * 2 + tp.
TEST(StridedShard, GoldenRowsOfFsdpOverTp) {
    const Placements placements = {StridedShard(0, 2), Shard(0)};
    const auto rows = [&](std::int64_t n, int dp, int tp) {
        return local_layout({n}, {2, 2}, placements, {dp, tp}).runs[0];
    };
    EXPECT_THAT(rows(8, 0, 0), ElementsAre(R{0, 2}));
    EXPECT_THAT(rows(8, 0, 1), ElementsAre(R{4, 6}));
    EXPECT_THAT(rows(8, 1, 0), ElementsAre(R{2, 4}));
    EXPECT_THAT(rows(8, 1, 1), ElementsAre(R{6, 8}));
    EXPECT_THAT(rows(10, 0, 0), ElementsAre(R{0, 3}));
    EXPECT_THAT(rows(10, 0, 1), ElementsAre(R{5, 8}));
    EXPECT_THAT(rows(10, 1, 0), ElementsAre(R{3, 5}));
    EXPECT_THAT(rows(10, 1, 1), ElementsAre(R{8, 10}));
}

// Where it divides, and here and there where it does not; 9 rows over (4, 2) have no strided description.
TEST(StridedShard, AgreesWithCuttingForTpFirst) {
    EXPECT_EQ(shard_range(shard_range(9, 2, 1).size, 4, 3).size, 1);
    const Placements strided = {StridedShard(0, 2), Shard(0)};
    EXPECT_EQ(local_layout({9}, {4, 2}, strided, {3, 1}).shape[0], 0);
    for (const std::int64_t n : {5, 7, 8, 10}) {
        for (int dp = 0; dp < 2; ++dp) {
            for (int tp = 0; tp < 2; ++tp) {
                const ShardRange of_tp = shard_range(n, 2, tp);
                const ShardRange of_dp = shard_range(of_tp.size, 2, dp);
                std::vector<R> expected;
                if (of_dp.size > 0)
                    expected.emplace_back(of_tp.offset + of_dp.offset,
                                          of_tp.offset + of_dp.offset + of_dp.size);
                EXPECT_EQ(local_layout({n}, {2, 2}, strided, {dp, tp}).runs[0], expected) << n;
            }
        }
    }
}

// PyTorch's comment: S(0), SS(0, 2) on eight elements over 2 x 2 holds lists of offsets.
TEST(StridedShard, SeveralRuns) {
    const auto runs = [](int a, int b) {
        return local_layout({8}, {2, 2}, {Shard(0), StridedShard(0, 2)}, {a, b}).runs[0];
    };
    EXPECT_THAT(runs(0, 0), ElementsAre(R{0, 1}, R{2, 3}));
    EXPECT_THAT(runs(0, 1), ElementsAre(R{1, 2}, R{3, 4}));
    EXPECT_THAT(runs(1, 0), ElementsAre(R{4, 5}, R{6, 7}));
    EXPECT_THAT(runs(1, 1), ElementsAre(R{5, 6}, R{7, 8}));
}

TEST(LocalLayout, PyTorchsExamples) {
    // (2, 5), both axes on dim 1: sizes 2, 1, 1, 1 at 0, 2, 3, 4.
    const std::vector<std::int64_t> sizes = {2, 1, 1, 1}, offsets = {0, 2, 3, 4};
    for (int rank = 0; rank < 4; ++rank) {
        const LocalLayout layout = local_layout({2, 5}, {2, 2}, {Shard(1), Shard(1)}, {rank / 2, rank % 2});
        EXPECT_THAT(layout.shape, ElementsAre(2, sizes[static_cast<std::size_t>(rank)]));
        EXPECT_THAT(layout.offsets, ElementsAre(0, offsets[static_cast<std::size_t>(rank)]));
    }
    // (2,) over 8 ranks: from rank 2 on empty, at offset 2.
    for (int rank = 0; rank < 8; ++rank) {
        const LocalLayout layout = local_layout({2}, {8}, {Shard(0)}, {rank});
        EXPECT_THAT(layout.shape, ElementsAre(rank < 2 ? 1 : 0));
        EXPECT_THAT(layout.offsets, ElementsAre(std::min(rank, 2)));
    }
}

// Every layout of 1-D tensors on three meshes, against lists of indices.
TEST(LocalLayout, AgreesWithTheOracle) {
    const Placements options = {Replicate(), Shard(0), StridedShard(0, 2), StridedShard(0, 3), Partial()};
    const std::vector<std::vector<int>> meshes = {{3}, {2, 3}, {2, 2, 3}};
    for (const auto& sizes : meshes) {
        for (const Placements& placements : oracle::every_layout(options, sizes.size())) {
            for (std::int64_t n = 0; n < 14; ++n) {
                std::vector<int> at(sizes.size(), 0);
                for (bool more = true; more;) {
                    const LocalLayout layout = local_layout({n}, sizes, placements, at);
                    oracle::Indices indices;
                    for (const auto& [start, stop] : layout.runs[0]) {
                        EXPECT_LT(start, stop);
                        for (std::int64_t i = start; i < stop; ++i) indices.push_back(i);
                    }
                    ASSERT_EQ(indices, oracle::held({n}, sizes, placements, at)[0])
                        << to_string(placements) << " of " << n;
                    ASSERT_EQ(layout.shape[0], static_cast<std::int64_t>(indices.size()));
                    ASSERT_EQ(local_shape({n}, sizes, placements, at), layout.shape);
                    std::size_t axis = sizes.size();
                    while (axis > 0 && ++at[axis - 1] == sizes[axis - 1]) at[--axis] = 0;
                    more = axis > 0;
                }
            }
        }
    }
}

TEST(Runs, CommonAndPositions) {
    const std::vector<R> a = {{0, 3}, {5, 9}, {12, 13}};
    const std::vector<R> b = {{1, 6}, {8, 13}};
    EXPECT_THAT(common_runs(a, b), ElementsAre(R{1, 3}, R{5, 6}, R{8, 9}, R{12, 13}));
    EXPECT_THAT(positions_in(a, common_runs(a, b)), ElementsAre(R{1, 3}, R{3, 4}, R{6, 7}, R{7, 8}));
    EXPECT_TRUE(common_runs(a, {}).empty());
    EXPECT_EQ(total_size(a), 8);
    for (const auto& [position, index] : {std::pair{0, 0}, {2, 2}, {3, 5}, {6, 8}, {7, 12}})
        EXPECT_EQ(index_at(a, position), index);
    EXPECT_THROW(index_at(a, 8), InvalidArgument);
}

TEST(Placement, WordsReadBack) {
    const Placements all = {Shard(0),
                            StridedShard(1, 4),
                            Replicate(),
                            Partial(),
                            Partial(comm::ReduceOp::avg),
                            Shard(-1),
                            Partial(comm::ReduceOp::max),
                            Partial(comm::ReduceOp::min)};
    EXPECT_EQ(to_string(all), "[S(0), SS(1, 4), R, P(sum), P(avg), S(-1), P(max), P(min)]");
    EXPECT_EQ(parse_placements(to_string(all)), all);
    EXPECT_EQ(parse_placements("S(0),SS(0,2),R,P"),
              (Placements{Shard(0), StridedShard(0, 2), Replicate(), Partial()}));
    expect_refused([] { parse_placements("S(0),X"); },
                   "unknown placement 'X'; write one of S(dim), SS(dim, split_factor), R");
    expect_refused([] { parse_placements("S(a)"); }, "'a' is not a number");
    expect_refused([] { parse_placements("S"); }, "is not a number");
    expect_refused([] { parse_placements("SS(0)"); }, "unknown placement 'SS(0)'");
    expect_refused([] { parse_placements("P(mean)"); }, "unknown placement 'P(mean)'");
    expect_refused([] { parse_placements("R,,R"); }, "empty placement");
    expect_refused([] { parse_placements(""); }, "empty placement");
    expect_refused([] { parse_placements("S(0"); }, "unbalanced parentheses");
}

TEST(Placement, CheckedAgainstMeshAndTensor) {
    EXPECT_EQ(checked_placements({Shard(-1), StridedShard(-2, 2)}, 2, 3),
              (Placements{Shard(2), StridedShard(1, 2)}));
    expect_refused([] { checked_placements({Shard(0)}, 2, 1); },
                   "1 placements [S(0)] for a mesh with 2 axes: one for each axis");
    expect_refused([] { checked_placements({Shard(2)}, 1, 2); },
                   "placement S(2) of a tensor with 2 dims: dim must be in [-2, 1]");
    expect_refused([] { checked_placements({Shard(-3)}, 1, 2); }, "dim must be in [-2, 1]");
    expect_refused([] { checked_placements({StridedShard(0, 0)}, 1, 1); }, "split factor must be at least 1");
    expect_refused([] { local_layout({4}, {2}, {Shard(0)}, {2}); }, "coordinate 2 on a mesh axis of size 2");
    expect_refused([] { local_layout({-4}, {2}, {Shard(0)}, {0}); }, "negative dim");
}

}  // namespace
}  // namespace tandem
