// The redistribute sweep, reduced, with every rank a process: this binary starts itself again as the ranks of
// each mesh.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "common/comm/launch.h"
#include "tests/support/run_tests.h"
#include "tests/unit/common/dtensor/sweep.h"

namespace tandem {
namespace {

constexpr const char* kRankFlag = "--sweep-mesh";

std::vector<int> parse_sizes(const std::string& text) {  // "2x3"
    std::vector<int> sizes;
    for (std::size_t at = 0; at < text.size(); at += 2) sizes.push_back(text[at] - '0');
    return sizes;
}

int run_rank(const std::string& sizes_text) {
    const auto world = comm::connect_from_environment(Deadline::after_ms(60'000));
    const std::vector<int> sizes = parse_sizes(sizes_text);
    const std::vector<std::string> letters = {"a", "b", "c"};
    const DeviceMesh mesh = DeviceMesh::create(
        world, sizes, {letters.begin(), letters.begin() + static_cast<std::ptrdiff_t>(sizes.size())});
    const Placements partials = {Partial(), Partial(comm::ReduceOp::avg), Partial(comm::ReduceOp::max)};
    oracle::Options options = oracle::options_for(2, {2}, partials, {0, 1, 2, 3, 5, 8});
    options.shapes_per_pair = 1;
    if (sizes.size() == 3)
        options.sources = options.targets = {Replicate(), Shard(0), StridedShard(0, 2), Shard(1)};
    const int checked = oracle::sweep(mesh, options);
    // 8 sources and 5 targets an axis; on three axes 4 and 4.
    const int expected = sizes.size() == 1 ? 8 * 5 : sizes.size() == 2 ? 64 * 25 : 64 * 64;
    if (checked != expected)
        throw std::runtime_error(fmt::format("{} pairs checked, not {}", checked, expected));
    world->barrier();
    return 0;
}

class SweepProcesses : public testing::TestWithParam<const char*> {};

TEST_P(SweepProcesses, EveryPairOfLayouts) {
    comm::LaunchOptions launch;
    for (const int size : parse_sizes(GetParam())) launch.world_size *= size;
    launch.command = {"/proc/self/exe", kRankFlag, GetParam()};
    const comm::LaunchResult result = comm::RankProcesses(launch).wait();
    EXPECT_EQ(result.exit_code, 0) << result.message;
    EXPECT_EQ(static_cast<int>(result.ranks.size()), launch.world_size);
}

INSTANTIATE_TEST_SUITE_P(Meshes, SweepProcesses, testing::Values("3", "2x2", "2x3", "2x2x2"));

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], tandem::kRankFlag) == 0) {
        try {
            return tandem::run_rank(argv[2]);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "rank %d: %s\n", tandem::comm::rank_environment().rank, error.what());
            return 1;
        }
    }
    return tandem::test::run_tests(argc, argv);
}
