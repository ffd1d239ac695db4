// A drawn tenth of the meshes of every_mesh_test.cpp and stage_mesh_test.cpp, on real processes. The binary is also its own rank ("--tensor-rank DRAW"), which
// compares its step with one rank's.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <random>

#include "common/comm/launch.h"
#include "common/sharding/tensor_cut.h"
#include "tests/multiproc/trainer/ranks.h"
#include "tests/unit/trainer/tensor_parallel/tensor_run.h"

namespace tandem::trainer::testing {
namespace {

constexpr std::size_t kOneOf = 10;
constexpr double kTolerance = 1e-5;

struct Case {
    MeshSizes sizes;
    TensorRun run;
    std::string text;
};

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    for (const auto& config : {llama_with_biases(), qwen2_tied(), qwen3_of_few_kv_heads()}) {
        for (int ranks = 2; ranks <= 8; ++ranks) {
            for (const MeshSizes& sizes : meshes_of(ranks)) {
                if (sizes.tp == 1 || tensor_degrees(config, sizes.tp).back() != sizes.tp) continue;
                for (const int batches : {1, 3}) {
                    for (const bool cut : {false, true}) {
                        Case& one = cases.emplace_back(Case{sizes, tensor_run(config, batches), ""});
                        one.run.options.sequence_parallel = one.run.options.loss_parallel = cut;
                        one.text = describe(sizes) + (cut ? " cut, " : ", ") + std::to_string(batches) +
                                   " micro-batches, " + config.architecture();
                    }
                }
            }
        }
    }
    return cases;
}

// Every mesh with stages, each with one schedule that it can run, in turns.
std::vector<Case> staged_cases() {
    std::vector<Case> cases;
    for (model::ModelConfig config : {llama_with_biases(), qwen2_tied(), qwen3_of_few_kv_heads()}) {
        config.num_hidden_layers = 6;
        for (const MeshSizes& sizes : staged_meshes(config)) {
            const std::vector<pipeline::Options> schedules = schedules_of(config, sizes.pp);
            Case& one = cases.emplace_back(Case{sizes, tensor_run(config, 3), ""});
            one.run.options.pipeline = schedules[cases.size() % schedules.size()];
            one.text =
                describe(sizes) + " " + one.run.options.pipeline.schedule + ", " + config.architecture();
        }
    }
    return cases;
}

std::vector<Case> drawn_cases() {
    std::vector<Case> cases = all_cases();
    for (Case& one : staged_cases()) cases.push_back(std::move(one));
    std::shuffle(cases.begin(), cases.end(), std::mt19937(11));
    cases.resize(cases.size() / kOneOf);
    for (std::size_t i = 0; i < cases.size(); ++i) {  // a pack of many sequences needs a ring's padding
        if (i % 2 == 0 && cases[i].sizes.cp > 1)
            cases[i].run.options.context = PolicyOptions::ContextMode::zigzag;
        cases[i].run.options.max_tokens_per_rank = 40;
    }
    return cases;
}

TEST(TensorProcesses, ADrawnTenthIsOneRank) {
    const std::vector<Case> cases = drawn_cases();
    ASSERT_GE(cases.size(), 20U);
    for (std::size_t i = 0; i < cases.size(); ++i) {
        comm::LaunchOptions launch;
        launch.world_size = cases[i].sizes.ranks();
        launch.segment_bytes = std::size_t{64} << 20;
        launch.command = {std::filesystem::read_symlink("/proc/self/exe").string(), "--tensor-rank",
                          std::to_string(i)};
        const comm::LaunchResult result = comm::RankProcesses(launch).wait();
        EXPECT_EQ(result.exit_code, 0) << cases[i].text << ": " << result.message;
    }
}

}  // namespace

int tensor_rank(std::size_t draw) {
    const Case drawn = drawn_cases().at(draw);
    ::testing::TestPartResultArray failures;
    try {
        const ::testing::ScopedFakeTestPartResultReporter reporter(&failures);
        const Step found =
            run_step(comm::connect_from_environment(Deadline::after_ms(60'000)), drawn.sizes, drawn.run);
        expect_same_step(found, of_stage(run_alone(drawn.run), found), kTolerance);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", drawn.text.c_str(), error.what());
        return 1;
    }
    for (int i = 0; i < failures.size(); ++i)
        std::fprintf(stderr, "%s: %s\n", drawn.text.c_str(), failures.GetTestPartResult(i).message());
    return failures.size() == 0 ? 0 : 1;
}

}  // namespace tandem::trainer::testing
