// The exhaustive sweep: every pair of layouts on small meshes, uneven and empty dims included. Ranks are threads, and
// where there are millions of calls fibers of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "common/comm/launch.h"
#include "tests/support/fiber_ranks.h"
#include "tests/unit/common/dtensor/sweep.h"

namespace tandem {
namespace {

using comm::ReduceOp;
const Placements kPartials = {Partial(), Partial(ReduceOp::avg), Partial(ReduceOp::max),
                              Partial(ReduceOp::min)};
const std::vector<std::int64_t> kDims = {0, 1, 2, 3, 5, 8};

using Run = void(int world_size, const std::function<void(std::shared_ptr<comm::Communicator>)>& body);

int sweep_mesh(const std::vector<int>& sizes, const std::vector<oracle::Options>& all,
               Run& run = comm::run_threads) {
    int world_size = 1;
    for (const int size : sizes) world_size *= size;
    const std::vector<std::string> letters = {"a", "b", "c"};
    const std::vector<std::string> names(letters.begin(),
                                         letters.begin() + static_cast<std::ptrdiff_t>(sizes.size()));
    std::atomic<int> checked{0};
    run(world_size, [&](const std::shared_ptr<comm::Communicator>& world) {
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

// Tensors of one dim with every reduction: every pair, every shape. Of two dims every pair, the shapes in turn: with one
// reduction a quarter of them for each pair, with every reduction one.
TEST(RedistributeSweep, TwoByTwoByTwo) {
    const int checked = sweep_mesh({2, 2, 2},
                                   {oracle::options_for(1, {2}, kPartials, kDims),
                                    thinned(oracle::options_for(2, {2}, {Partial()}, kDims), 9),
                                    thinned(oracle::options_for(2, {2}, kPartials, kDims), 1)},
                                   test::run_fibers);
    EXPECT_EQ(checked, 343 * 27 * 6 + 216 * 125 * 9 + 729 * 125);
}

TEST(RedistributeSweep, TwoByTwoByTwoThreads) {
    const int checked = sweep_mesh({2, 2, 2}, {thinned(oracle::options_for(1, {2}, kPartials, kDims), 1),
                                               thinned(oracle::options_for(2, {2}, {Partial()}, kDims), 1)});
    EXPECT_EQ(checked, 343 * 27 + 216 * 125);
}

// A wrong rank fails the sweep, not the deadline of those that wait for it.
TEST(RedistributeSweep, FibersNameWhoWaits) {
    const auto run = [](auto body) { test::run_fibers(2, body); };
    const auto error = [&](auto body) {
        try {
            run(body);
        } catch (const std::exception& failure) {
            return std::string(failure.what());
        }
        return std::string("none");
    };
    using World = std::shared_ptr<comm::Communicator>;
    EXPECT_THAT(error([](const World& world) {
                    if (world->rank() == 0) world->barrier();
                }),
                testing::HasSubstr("ranks wait for each other; rank 0 in barrier on 'world'"));
    EXPECT_EQ(error([](const World& world) {
                  if (world->rank() == 1) throw std::runtime_error("broken");
                  world->barrier();
              }),
              "broken");
    EXPECT_THAT(error([](const World& world) {
                    float value = 1;
                    if (world->rank() == 0) return world->barrier();
                    world->broadcast({reinterpret_cast<std::byte*>(&value), sizeof(value)}, 1);
                }),
                testing::HasSubstr("on 'world' one rank is in"));
}

// Three dims, so that a cut dim has dims on both sides.
TEST(RedistributeSweep, ThreeDims) {
    EXPECT_EQ(sweep_mesh({2, 2}, {thinned(oracle::options_for(3, {2}, {Partial()}, kDims), 8)}), 64 * 49 * 8);
}

}  // namespace
}  // namespace tandem
