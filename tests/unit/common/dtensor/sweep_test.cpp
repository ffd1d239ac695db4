// The exhaustive sweep: every pair of layouts on small meshes, uneven and empty dims included, ranks as
// threads.
#include <gtest/gtest.h>

#include <atomic>

#include "common/comm/launch.h"
#include "tests/unit/common/dtensor/sweep.h"

namespace tandem {
namespace {

using comm::ReduceOp;
const Placements kPartials = {Partial(), Partial(ReduceOp::avg), Partial(ReduceOp::max),
                              Partial(ReduceOp::min)};
const std::vector<std::int64_t> kDims = {0, 1, 2, 3, 5, 8};

int sweep_mesh(const std::vector<int>& sizes, const std::vector<oracle::Options>& all) {
    int world_size = 1;
    for (const int size : sizes) world_size *= size;
    const std::vector<std::string> letters = {"a", "b", "c"};
    const std::vector<std::string> names(letters.begin(),
                                         letters.begin() + static_cast<std::ptrdiff_t>(sizes.size()));
    std::atomic<int> checked{0};
    comm::run_threads(world_size, [&](const std::shared_ptr<comm::Communicator>& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, sizes, names);
        int mine = 0;
        for (const oracle::Options& options : all) mine += oracle::sweep(mesh, options);
        if (mesh.rank() == 0) checked = mine;
    });
    return checked;
}

oracle::Options thinned(oracle::Options options, int shapes_per_pair) {
    options.shapes_per_pair = shapes_per_pair;
    return options;
}

// Tensors of one and two dims: every pair of layouts, every shape.
TEST(RedistributeSweep, OneAxis) {
    for (const int size : {2, 3, 4}) {
        const int checked = sweep_mesh({size}, {oracle::options_for(1, {2, 3}, kPartials, kDims),
                                                oracle::options_for(2, {2, 3}, kPartials, kDims)});
        EXPECT_EQ(checked, 8 * 4 * 6 + 11 * 7 * 36);
    }
}

TEST(RedistributeSweep, TwoByTwo) {
    const int checked = sweep_mesh({2, 2}, {oracle::options_for(1, {2, 3}, kPartials, kDims),
                                            oracle::options_for(2, {2}, kPartials, kDims)});
    EXPECT_EQ(checked, 64 * 16 * 6 + 81 * 25 * 36);
}

TEST(RedistributeSweep, TwoByThree) {
    const int checked = sweep_mesh({2, 3}, {oracle::options_for(1, {2, 3}, kPartials, kDims),
                                            oracle::options_for(2, {2}, kPartials, kDims)});
    EXPECT_EQ(checked, 64 * 16 * 6 + 81 * 25 * 36);
}

// Tensors of one dim with every reduction, of two dims with one: every pair, every shape. Then two dims with
// every reduction, the shapes in turn.
TEST(RedistributeSweep, TwoByTwoByTwo) {
    const int checked = sweep_mesh({2, 2, 2}, {oracle::options_for(1, {2}, kPartials, kDims),
                                               oracle::options_for(2, {2}, {Partial()}, kDims),
                                               thinned(oracle::options_for(2, {2}, kPartials, kDims), 1)});
    EXPECT_EQ(checked, 343 * 27 * 6 + 216 * 125 * 36 + 729 * 125);
}

// Three dims, so that a cut dim has dims on both sides.
TEST(RedistributeSweep, ThreeDims) {
    EXPECT_EQ(sweep_mesh({2, 2}, {thinned(oracle::options_for(3, {2}, {Partial()}, kDims), 8)}), 64 * 49 * 8);
}

}  // namespace
}  // namespace tandem
