// The policy on real processes: the binary is also its own rank ("--rank DP CP MODE DIR"). Loss and gradients
// must be those of one rank; what a rank finds it writes to DIR for the parent to compare.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "common/comm/launch.h"
#include "common/model/safetensors.h"
#include "tests/multiproc/trainer/ranks.h"
#include "tests/support/grpo_loss.h"
#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {
namespace {

namespace fs = std::filesystem;

struct Job {
    MeshSizes sizes;
    std::string mode;  // "packed", "zigzag" or "dp": packed, sharded over dp only
    std::string directory;
};

PolicyOptions options_of(const std::string& mode) {
    PolicyOptions options;
    options.init_std = 0.2f;
    options.max_tokens_per_rank = 24;
    options.shard_over_cp = mode != "dp";
    if (mode == "zigzag") options.context = PolicyOptions::ContextMode::zigzag;
    return options;
}

std::vector<Sample> samples() {
    return random_samples({11, 3, 1, 9, 6, 14, 2, 21}, tiny_config().vocab_size, 1);
}

using Named = std::vector<std::pair<std::string, Tensor>>;

void rank_body(const Job& job) {
    auto world = comm::connect_from_environment(Deadline::after_ms(30'000));
    const std::string file = job.directory + "/rank" + std::to_string(world->rank()) + ".safetensors";
    const Outcome outcome = run_rank(std::move(world), job.sizes, tiny_config(), options_of(job.mode),
                                     samples(), grpo_loss(0.2f, 0.2f));
    Named tensors;
    for (const auto& [name, values] : outcome.gradients) {
        tensors.emplace_back(name, Tensor::from<float>(values, {static_cast<std::int64_t>(values.size())}));
    }
    const std::vector<float> loss{static_cast<float>(outcome.stats.loss)};
    tensors.emplace_back("loss", Tensor::from<float>(loss, {1}));
    model::write_safetensors(file, tensors);
}

class Processes : public ::testing::Test {
  protected:
    void SetUp() override {
        directory_ = ::testing::TempDir() + "policy_" + std::to_string(::getpid());
        fs::create_directories(directory_);
    }
    void TearDown() override { fs::remove_all(directory_); }

    void expect_like_one_rank(MeshSizes sizes, const std::string& mode) {
        comm::LaunchOptions launch;
        launch.world_size = sizes.dp * sizes.cp;
        launch.segment_bytes = std::size_t{64} << 20;
        launch.command = {fs::read_symlink("/proc/self/exe").string(),
                          "--rank",
                          std::to_string(sizes.dp),
                          std::to_string(sizes.cp),
                          mode,
                          directory_};
        const comm::LaunchResult result = comm::RankProcesses(launch).wait();
        ASSERT_EQ(result.exit_code, 0) << result.message;
        PolicyOptions options = options_of(mode);
        options.max_tokens_per_rank = 1000;
        const Outcome one = run_mesh({1, 1}, tiny_config(), options, samples(), grpo_loss(0.2f, 0.2f));
        for (int rank = 0; rank < launch.world_size; ++rank) {
            const auto file = directory_ + "/rank" + std::to_string(rank) + ".safetensors";
            const auto alone = directory_ + "/" + std::to_string(rank);
            fs::create_directories(alone);
            fs::rename(file, alone + "/model.safetensors");
            const auto found = model::Safetensors::open(alone);
            EXPECT_NEAR(found.tensor("loss").to_vector<float>()[0], one.stats.loss, 1e-5);
            for (const auto& [name, gradient] : one.gradients) {
                EXPECT_LE(relative_difference(found.tensor(name).to_vector<float>(), gradient), 1e-5)
                    << name << " rank " << rank << " " << mode;
            }
        }
    }

    std::string directory_;
};

TEST_F(Processes, DpTwo) {
    expect_like_one_rank({2, 1}, "packed");
}
TEST_F(Processes, CpTwoPacked) {
    expect_like_one_rank({1, 2}, "packed");
}
TEST_F(Processes, CpTwoZigzag) {
    expect_like_one_rank({1, 2}, "zigzag");
}
TEST_F(Processes, DpTwoCpTwo) {
    expect_like_one_rank({2, 2}, "packed");
}
TEST_F(Processes, DpTwoCpTwoShardedOverDp) {
    expect_like_one_rank({2, 2}, "dp");
}

}  // namespace

int policy_rank(char** arguments) {
    try {
        rank_body({{std::stoi(arguments[0]), std::stoi(arguments[1])}, arguments[2], arguments[3]});
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", comm::rank_environment().rank, error.what());
        return 1;
    }
}

}  // namespace tandem::trainer::testing
