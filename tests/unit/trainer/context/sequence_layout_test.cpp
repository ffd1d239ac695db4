// How packs are padded and cut: the golden tables of the reference notes, and coverage over many shapes.
#include "trainer/context/sequence_layout.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "trainer/data/micro_batch.h"

namespace tandem::trainer {
namespace {

using List = std::vector<std::int64_t>;

void expect_local(const std::vector<std::int32_t>& cu, int cp, int rank, const List& cu_q, const List& cu_k,
                  std::int64_t k_begin, std::int64_t k_end) {
    const LocalSeqlens local = prepare_cu_seqlens(cu, rank, cp);
    EXPECT_EQ(local.cu_q, cu_q) << "rank " << rank;
    EXPECT_EQ(local.cu_k, cu_k) << "rank " << rank;
    EXPECT_EQ(local.k_begin, k_begin) << "rank " << rank;
    EXPECT_EQ(local.k_end, k_end) << "rank " << rank;
}

TEST(PrepareCuSeqlens, GoldenTableOfEightRanks) {
    const std::vector<std::int32_t> cu{0, 7, 14, 16};
    expect_local(cu, 8, 0, {0, 2}, {0, 2}, 0, 2);
    expect_local(cu, 8, 1, {0, 2}, {0, 4}, 0, 4);
    expect_local(cu, 8, 2, {0, 2}, {0, 6}, 0, 6);
    expect_local(cu, 8, 3, {0, 1, 2}, {0, 7, 8}, 0, 8);
    expect_local(cu, 8, 4, {0, 2}, {0, 3}, 7, 10);
    expect_local(cu, 8, 5, {0, 2}, {0, 5}, 7, 12);
    expect_local(cu, 8, 6, {0, 2}, {0, 7}, 7, 14);
    expect_local(cu, 8, 7, {0, 2}, {0, 2}, 14, 16);
}

TEST(PrepareCuSeqlens, GoldenTableOfFourRanks) {
    const std::vector<std::int32_t> cu{0, 7, 14, 16};
    expect_local(cu, 4, 0, {0, 4}, {0, 4}, 0, 4);
    expect_local(cu, 4, 1, {0, 3, 4}, {0, 7, 8}, 0, 8);
    expect_local(cu, 4, 2, {0, 4}, {0, 5}, 7, 12);
    expect_local(cu, 4, 3, {0, 2, 4}, {0, 7, 9}, 7, 16);
}

TEST(Zigzag, GoldenChunks) {
    const std::vector<List> expected{{0, 1, 14, 15}, {2, 3, 12, 13}, {4, 5, 10, 11}, {6, 7, 8, 9}};
    for (int rank = 0; rank < 4; ++rank) {
        const SequenceLayout layout = zigzag_layout(List{16}, 4, rank);
        List positions;
        std::int64_t pairs = 0;
        for (const auto& row : layout.rows) {
            positions.push_back(row.position);
            pairs += row.position + 1;
        }
        EXPECT_EQ(positions, expected[static_cast<std::size_t>(rank)]);
        EXPECT_EQ(pairs, 34);  // causal work is the same everywhere
        EXPECT_EQ(layout.pad_len, 0);
    }
}

// Every token of every sequence is on exactly one rank; the rest is padding, counted, behind its sequence.
void expect_covers(const List& lengths, int cp, bool zigzag) {
    std::map<std::pair<int, int>, int> count;
    std::int64_t padding = 0;
    std::int64_t pad_len = 0;
    std::size_t local_rows = 0;
    for (int rank = 0; rank < cp; ++rank) {
        const SequenceLayout layout =
            zigzag ? zigzag_layout(lengths, cp, rank) : packed_layout(lengths, cp, rank);
        if (rank == 0) local_rows = layout.rows.size();
        ASSERT_EQ(layout.rows.size(), local_rows);
        ASSERT_GE(local_rows, 1u);
        ASSERT_EQ(layout.cu_seqlens.back(), static_cast<int>(local_rows) * cp);
        pad_len = layout.pad_len;
        for (const auto& row : layout.rows) {
            if (layout.is_padding(row)) {
                ++padding;
            } else {
                ++count[{row.sequence, row.position}];
            }
        }
    }
    EXPECT_EQ(padding, pad_len);
    std::size_t tokens = 0;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
        tokens += static_cast<std::size_t>(lengths[s]);
        for (int p = 0; p < lengths[s]; ++p) ASSERT_EQ((count[{static_cast<int>(s), p}]), 1);
    }
    EXPECT_EQ(count.size(), tokens);
}

TEST(Layouts, CoverEveryTokenOnce) {
    const std::vector<List> packs{{}, {1}, {3}, {16}, {17}, {5, 1, 9}, {7, 7, 2}, {1, 1, 1}, {31, 2}};
    for (const List& lengths : packs) {
        for (const int cp : {1, 2, 3, 4}) {
            expect_covers(lengths, cp, false);
            if (!lengths.empty()) expect_covers(lengths, cp, true);
        }
    }
}

TEST(MicroBatch, TargetsCrossRankBordersAndPaddingHasNone) {
    // Two samples of 3 and 2 tokens over 2 ranks: 6 rows, one of padding. Token id 0 is real, too.
    const std::vector<Sample> samples{{{0, 1, 2}, {1, 1, 1}, {}, {}}, {{3, 0}, {0, 1}, {}, {}}};
    const Pack pack{{0, 1}, 5};
    const MicroBatch first = make_micro_batch(samples, pack, false, 2, 0);
    const MicroBatch second = make_micro_batch(samples, pack, false, 2, 1);
    EXPECT_EQ(first.tokens, (std::vector<std::int32_t>{0, 1, 2}));
    EXPECT_EQ(first.target_rows,
              (std::vector<std::int32_t>{0, 1}));  // mask[0] is ignored; token 2 ends its sample
    EXPECT_EQ(first.target_tokens, (std::vector<std::int32_t>{1, 2}));
    EXPECT_EQ(second.tokens, (std::vector<std::int32_t>{3, 0, 0}));
    EXPECT_EQ(second.positions, (std::vector<std::int32_t>{0, 1, 2}));
    EXPECT_EQ(second.target_rows, (std::vector<std::int32_t>{0}));
    EXPECT_EQ(second.target_tokens, (std::vector<std::int32_t>{0}));
    EXPECT_EQ(second.layout.pad_len, 1);

    // One sample of 4 over 2 ranks: the target of the last row of rank 0 is the first token of rank 1.
    const std::vector<Sample> one{{{5, 6, 7, 8}, {0, 0, 1, 1}, {}, {}}};
    const MicroBatch cut = make_micro_batch(one, {{0}, 4}, false, 2, 0);
    EXPECT_EQ(cut.target_tokens, (std::vector<std::int32_t>{7}));
    EXPECT_EQ(cut.target_rows, (std::vector<std::int32_t>{1}));
    EXPECT_EQ(cut.owners.front().index, 2);
}

}  // namespace
}  // namespace tandem::trainer
