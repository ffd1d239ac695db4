// Which layouts are one block of rows and columns, and how blocks meet, against sets of elements.
#include "common/dtensor/block.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "common/error.h"

namespace tandem {
namespace {

DTensor on(const DeviceMesh& mesh, const Placements& placements, const Shape& shape) {
    const Tensor local = Tensor::zeros(local_shape(shape, mesh.sizes(), placements, mesh.coordinates()),
                                       DType::float32, "test");
    return DTensor::from_local(local, mesh, placements, shape);
}

DeviceMesh two_by_two(int rank) {
    return DeviceMesh::abstract({2, 2}, {"tp", "fsdp"}, rank);
}

TEST(TensorBlock, IsWhatARankHolds) {
    const auto held = [](int rank, const Placements& placements, const Shape& shape) {
        return held_block(on(two_by_two(rank), placements, shape));
    };
    EXPECT_EQ(held(3, {Shard(1), Shard(0)}, {7, 11}), (TensorBlock{4, 3, 6, 5}));
    EXPECT_EQ(held(3, {Shard(1), Shard(0)}, {7, 5, 2}), (TensorBlock{4, 3, 6, 4}));
    EXPECT_EQ(held(3, {Shard(1), Shard(0)}, {1, 1}), (TensorBlock{1, 0, 1, 0}));
    EXPECT_EQ(held(3, {Shard(0), Shard(0)}, {7, 11}), (TensorBlock{6, 1, 0, 11}));
    EXPECT_EQ(held(1, {Shard(0), Replicate()}, {7}), (TensorBlock{0, 4, 0, 1}));
    EXPECT_EQ(held(2, {Shard(1), Shard(1)}, {7, 11}), (TensorBlock{0, 7, 6, 3}));
}

TEST(TensorBlock, OfATensorOnOtherRanksIsEmpty) {
    const DTensor tensor = DTensor::elsewhere({7, 11}, DType::bfloat16);
    EXPECT_FALSE(tensor.is_here());
    EXPECT_TRUE(tensor.defined());
    EXPECT_EQ(tensor.dtype(), DType::bfloat16);
    EXPECT_EQ(tensor.shape(), (Shape{7, 11}));
    EXPECT_EQ(tensor.local().shape(), (Shape{0, 11}));
    EXPECT_EQ(held_block(tensor), (TensorBlock{0, 0, 0, 11}));
    EXPECT_FALSE(DTensor().defined());
    EXPECT_TRUE(on(two_by_two(0), {Replicate(), Replicate()}, {2}).is_here());
}

TEST(TensorBlock, RefusesWhatIsNotOne) {
    const auto refused = [](const Placements& placements, const Shape& shape) {
        EXPECT_THROW(held_block(on(two_by_two(0), placements, shape)), InvalidArgument)
            << to_string(placements);
    };
    refused({StridedShard(0, 2), Replicate()}, {8, 4});
    refused({StridedShard(1, 2), Replicate()}, {4, 8});
    refused({Shard(2), Replicate()}, {2, 2, 2});
    refused({Partial(), Replicate()}, {2, 2});
    refused({Replicate(), Replicate()}, {});
    EXPECT_THROW(whole_block({}), InvalidArgument);
}

TEST(TensorBlock, HasAShapeOfItsOwn) {
    EXPECT_EQ(block_shape({7}, {2, 3, 0, 1}), (Shape{3}));
    EXPECT_EQ(block_shape({7, 11}, {2, 3, 6, 5}), (Shape{3, 5}));
    EXPECT_EQ(block_shape({7, 5, 2}, {2, 3, 6, 4}), (Shape{3, 2, 2}));
    EXPECT_EQ(block_shape({7, 0}, {2, 3, 0, 0}), (Shape{3, 0}));
    EXPECT_THROW(block_shape({7, 5, 2}, {2, 3, 5, 4}), InvalidArgument);
    EXPECT_THROW(block_shape({7, 5, 2}, {2, 3, 6, 3}), InvalidArgument);
    EXPECT_THROW(block_shape({7}, {2, 3, 0, 0}), InvalidArgument);
}

std::set<std::int64_t> elements_of(const TensorBlock& block, std::int64_t columns) {
    std::set<std::int64_t> result;
    for (std::int64_t row = block.first_row; row < block.end_row(); ++row) {
        for (std::int64_t column = block.first_column; column < block.end_column(); ++column)
            result.insert(row * columns + column);
    }
    return result;
}

// Ids of the tensor [5, 4] in each block, and back by runs.
TEST(TensorBlock, MeetsOthersInRunsOfWhatBothHave) {
    constexpr std::int64_t kRows = 5, kColumns = 4;
    std::vector<TensorBlock> blocks;
    for (const auto& [row, rows] :
         {std::pair<std::int64_t, std::int64_t>{0, 5}, {0, 2}, {1, 3}, {4, 1}, {5, 0}}) {
        for (const auto& [column, columns] :
             {std::pair<std::int64_t, std::int64_t>{0, 4}, {0, 1}, {1, 2}, {3, 1}, {4, 0}})
            blocks.push_back({row, rows, column, columns});
    }
    for (const TensorBlock& a : blocks) {
        for (const TensorBlock& b : blocks) {
            const auto in_a = elements_of(a, kColumns), in_b = elements_of(b, kColumns);
            std::set<std::int64_t> both;
            std::set_intersection(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(),
                                  std::inserter(both, both.end()));
            const TensorBlock part = common_block(a, b);
            EXPECT_EQ(elements_of(part, kColumns), both);
            const std::vector<std::int64_t> from(in_a.begin(), in_a.end()), to(in_b.begin(), in_b.end());
            std::vector<std::int64_t> found;
            int runs = 0;
            for_each_run(part, a, b, [&](std::int64_t at, std::int64_t into, std::int64_t count) {
                ++runs;
                for (std::int64_t i = 0; i < count; ++i) {
                    found.push_back(from.at(static_cast<std::size_t>(at + i)));
                    EXPECT_EQ(found.back(), to.at(static_cast<std::size_t>(into + i)));
                }
            });
            EXPECT_EQ(found, std::vector<std::int64_t>(both.begin(), both.end()));
            const bool whole_rows = a.columns == kColumns && b.columns == kColumns;
            EXPECT_EQ(runs, both.empty() ? 0 : (whole_rows ? 1 : runs));
        }
    }
    EXPECT_EQ(whole_block({kRows, kColumns}), (TensorBlock{0, kRows, 0, kColumns}));
}

}  // namespace
}  // namespace tandem
