// The prediction against the counted peak on real processes: the binary is also its own rank ("--rank CASE").
// A rank compares by itself and fails with what was off.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "common/comm/launch.h"
#include "tests/support/run_tests.h"
#include "tests/unit/trainer/memory/memory_cases.h"

namespace tandem::trainer::testing {
namespace {

std::vector<MemoryCase> all_cases() {
    auto cases = process_cases();
    for (const MemoryCase& c : gpu_cases()) cases.push_back(c);
    return cases;
}

class MemoryPrediction : public ::testing::TestWithParam<int> {};

TEST_P(MemoryPrediction, IsWhatIsCounted) {
    const MemoryCase c = all_cases()[static_cast<std::size_t>(GetParam())];
    comm::LaunchOptions launch;
    launch.world_size = c.mesh.ranks();
    launch.segment_bytes = std::size_t{256} << 20;
    launch.command = {std::filesystem::read_symlink("/proc/self/exe").string(), "--rank",
                      std::to_string(GetParam())};
    const comm::LaunchResult result = comm::RankProcesses(launch).wait();
    EXPECT_EQ(result.exit_code, 0) << describe(c) << ": " << result.message;
}

INSTANTIATE_TEST_SUITE_P(Family, MemoryPrediction, ::testing::Range(0, static_cast<int>(all_cases().size())));

}  // namespace

int rank_main(int index) {
    const MemoryCase c = all_cases()[static_cast<std::size_t>(index)];
    if (c.gpu) ::setenv("TANDEM_EMULATED_GPUS", "1", 1);
    auto world = comm::connect_from_environment(Deadline::after_ms(30'000));
    const int rank = world->rank();
    const std::string wrong = check_memory(std::move(world), c);
    if (!wrong.empty()) std::fprintf(stderr, "rank %d:\n%s", rank, wrong.c_str());
    return wrong.empty() ? 0 : 1;
}

}  // namespace tandem::trainer::testing

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "--rank") == 0)
        return tandem::trainer::testing::rank_main(std::stoi(argv[2]));
    return tandem::test::run_tests(argc, argv);
}
