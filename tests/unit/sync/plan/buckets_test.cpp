// Plans cut into pieces and laid into buckets: carried out on arrays of element numbers, every element must
// land once, inside its bucket, and every bucket must keep every rank busy.
#include "sync/plan/buckets.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "common/error.h"

namespace tandem::sync {
namespace {

using engine::TensorInfo;

SourceTensor source_tensor(const std::string& name, Shape shape, DType dtype = DType::bfloat16) {
    return {name, std::move(shape), dtype, {0}};
}

ReshardPlan plan_of(const std::vector<int>& mesh, const Placements& placements,
                    const std::vector<SourceTensor>& tensors, DType engine_dtype = DType::bfloat16) {
    SourceLayout source;
    source.world_size = std::accumulate(mesh.begin(), mesh.end(), 1, std::multiplies<>());
    std::vector<int> ranks(static_cast<std::size_t>(source.world_size));
    std::iota(ranks.begin(), ranks.end(), 0);
    source.groups = {{ranks, mesh, placements}};
    source.tensors = tensors;
    EngineLayout engine(1);
    for (const SourceTensor& tensor : tensors)
        engine[0].push_back({tensor.name, tensor.shape, engine_dtype, {}});
    return ReshardPlan::make(std::move(source), std::move(engine));
}

using Cell = std::pair<int, std::int64_t>;  // tensor, element

// Every pair of (source rank, source element) → (engine tensor, element) that the moves make.
std::map<std::pair<int, Cell>, int> links(const std::vector<Move>& moves) {
    std::map<std::pair<int, Cell>, int> result;
    for (const Move& move : moves) {
        for (std::int64_t row = 0; row < move.rows; ++row) {
            for (std::int64_t i = 0; i < move.row_elements; ++i) {
                const std::int64_t from = move.source_offset + row * move.source_stride + i;
                const std::int64_t to = move.target_offset + row * move.target_stride + i;
                ++result[{move.source_rank * 1000 + move.source_tensor, {static_cast<int>(from), to}}];
            }
        }
    }
    return result;
}

// The pieces say exactly what the plan's moves say, each inside its bucket and apart from the others.
void check(const ReshardPlan& plan, const BucketPlan& buckets, std::size_t bucket_bytes,
           std::size_t max_piece, bool staged) {
    std::vector<Move> whole;
    std::vector<Move> cut;
    for (int rank = 0; rank < plan.source().world_size; ++rank) {
        const auto moves = plan.moves_from(rank);
        whole.insert(whole.end(), moves.begin(), moves.end());
    }
    std::size_t bytes = 0;
    std::uint32_t next = 0;
    for (std::size_t b = 0; b < buckets.buckets(); ++b) {
        std::map<std::size_t, std::size_t> used;  // start → end
        for (std::size_t rank = 0; rank < buckets.ranks; ++rank) {
            for (std::size_t i = buckets.begin(b, rank); i < buckets.end(b, rank); ++i) {
                const Piece& piece = buckets.pieces[i];
                ASSERT_EQ(piece.move.source_rank, static_cast<int>(rank));
                ASSERT_EQ(piece.transfer, next++);
                ASSERT_GT(piece.bytes, 0u);
                ASSERT_LE(piece.bytes, max_piece);
                const std::size_t width = dtype_size(target_of(plan, piece.move).dtype);
                ASSERT_EQ(piece.bytes,
                          static_cast<std::size_t>(piece.move.rows * piece.move.row_elements) * width);
                cut.push_back(piece.move);
                bytes += piece.bytes;
                if (!staged) continue;
                ASSERT_EQ(piece.bucket_offset % 64, 0u);
                ASSERT_LE(piece.bucket_offset + piece.bytes, std::min(bucket_bytes, buckets.bucket_bytes));
                const auto after = used.lower_bound(piece.bucket_offset);
                const bool clear =
                    (after == used.end() || piece.bucket_offset + piece.bytes <= after->first) &&
                    (after == used.begin() || std::prev(after)->second <= piece.bucket_offset);
                ASSERT_TRUE(clear) << "piece " << i << " overlaps another";
                used[piece.bucket_offset] = piece.bucket_offset + piece.bytes;
            }
        }
        ASSERT_EQ(buckets.engine_first[0][b + 1], next);
    }
    EXPECT_EQ(bytes, plan.bytes());
    EXPECT_EQ(buckets.bytes, plan.bytes());
    EXPECT_EQ(links(cut), links(whole));
}

TEST(Buckets, RandomPlansAreCutWithoutLossOrRepetition) {
    std::mt19937 random(7);
    const auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    for (int round = 0; round < 150; ++round) {
        SCOPED_TRACE(fmt::format("round {}", round));
        const std::vector<int> mesh =
            pick(0, 1) == 0 ? std::vector<int>{pick(1, 6)} : std::vector<int>{pick(1, 3), pick(1, 3)};
        const int ranks = std::accumulate(mesh.begin(), mesh.end(), 1, std::multiplies<>());
        Placements placements;
        for (std::size_t axis = 0; axis < mesh.size(); ++axis)
            placements.push_back(pick(0, 2) == 0 ? Replicate() : Shard(pick(0, 1)));
        std::vector<SourceTensor> tensors;
        for (int t = pick(1, 6); t > 0; --t)
            tensors.push_back(source_tensor(fmt::format("t{}", t), {pick(1, 24), pick(1, 24), pick(1, 6)}));
        const ReshardPlan plan =
            plan_of(mesh, placements, tensors, pick(0, 1) == 0 ? DType::float32 : DType::bfloat16);
        const auto bucket = static_cast<std::size_t>(pick(64 * ranks, 12000));
        const auto piece = static_cast<std::size_t>(pick(64, 3000));
        check(plan, make_staged(plan, {bucket, piece}), bucket, piece, true);
        check(plan, make_grouped(plan, {bucket, piece}), bucket, piece, false);
        if (HasFatalFailure()) return;
    }
}

TEST(Buckets, EveryBucketKeepsEveryRankBusyAlsoInsideOneHugeTensor) {
    // A tensor ten times a bucket, its upper rows on rank 0: cut so that both ranks work on every bucket.
    const ReshardPlan plan = plan_of({2}, {Shard(0)}, {source_tensor("embedding", {2560, 128})});
    const BucketPlan buckets = make_staged(plan, {65536, 8192});
    ASSERT_GE(buckets.buckets(), 10u);
    for (std::size_t b = 0; b + 1 < buckets.buckets(); ++b) {
        std::vector<std::size_t> bytes(2, 0);
        for (std::size_t rank = 0; rank < 2; ++rank) {
            for (std::size_t i = buckets.begin(b, rank); i < buckets.end(b, rank); ++i)
                bytes[rank] += buckets.pieces[i].bytes;
        }
        EXPECT_EQ(bytes[0], bytes[1]) << b;
        EXPECT_GE(bytes[0] + bytes[1], 60000u) << b;
    }
}

TEST(Buckets, WholeRowsWhereOneFits) {
    const ReshardPlan plan = plan_of({3}, {Shard(0)}, {source_tensor("w", {100, 100})});
    for (const Piece& piece : make_staged(plan, {3000, 1000}).pieces)
        EXPECT_EQ(piece.move.target_offset % 100, 0);
    // And inside a row where none does.
    const ReshardPlan wide = plan_of({3}, {Shard(0)}, {source_tensor("w", {3, 5000})});
    const BucketPlan buckets = make_staged(wide, {3000, 1000});
    check(wide, buckets, 3000, 1000, true);
}

TEST(Buckets, ASmallModelNeedsNoWholeBucket) {
    const ReshardPlan plan = plan_of({2}, {Shard(0)}, {source_tensor("w", {64, 16})});
    EXPECT_EQ(make_staged(plan, {64u << 20, 1u << 20}).bucket_bytes, 64u * 16 * 2);
}

TEST(Buckets, ABucketForFewerBytesThanRanksIsRefused) {
    const ReshardPlan plan = plan_of({4}, {Shard(0)}, {source_tensor("w", {64, 16})});
    EXPECT_THROW(make_staged(plan, {255, 1024}), InvalidArgument);
    EXPECT_THROW(make_staged(plan, {4096, 63}), InvalidArgument);
}

TEST(Buckets, TransfersSayWhereEachPieceLies) {
    const ReshardPlan plan = plan_of({2}, {Shard(1)}, {source_tensor("w", {8, 64}, DType::float32)});
    const BucketPlan buckets = make_grouped(plan, {1u << 20, 1u << 20});
    const auto place = [](std::size_t i, const Piece& piece, engine::Transfer& transfer) {
        transfer.region = static_cast<std::uint32_t>(piece.move.source_rank);
        transfer.from_dtype = DType::float32;
        transfer.from = 1000 * i;
        transfer.from_stride = 128;
    };
    const engine::TransferPlan told = transfer_plan(plan, buckets, 0, place);
    ASSERT_EQ(told.transfers.size(), 2u);
    EXPECT_EQ(told.first, (std::vector<std::uint64_t>{0, 2}));
    for (std::size_t i = 0; i < 2; ++i) {
        const engine::Transfer& transfer = told.transfers[i];
        EXPECT_EQ(transfer.region, i);
        EXPECT_EQ(transfer.from_dtype, DType::float32);
        EXPECT_EQ(transfer.from, 1000 * i);
        EXPECT_EQ(transfer.from_stride, 128u);
        EXPECT_EQ(transfer.rows, 8u);
        EXPECT_EQ(transfer.row_elements, 32u);
        EXPECT_EQ(transfer.to, i * 32 * 2);  // bytes of bfloat16
        EXPECT_EQ(transfer.to_stride, 128u);
    }
}

}  // namespace
}  // namespace tandem::sync
