// Every mesh of up to eight ranks with a pp axis is one rank: the stage that a rank has, beside those parameters of one rank.
#include <gtest/gtest.h>

#include <set>

#include "common/comm/launch.h"
#include "tests/support/error_of.h"
#include "tests/support/fiber_ranks.h"
#include "tests/unit/trainer/tensor_parallel/tensor_run.h"

namespace tandem::trainer::testing {
namespace {

constexpr double kStageTolerance = 1e-5;

// On each rank; `names`: of the parameters that were looked at.
void expect_stage(const std::shared_ptr<comm::Communicator>& world, const MeshSizes& sizes,
                  const TensorRun& run, const Step& one, std::set<std::string>& names) {
    const Step found = run_step(world, sizes, run);
    expect_same_step(found, of_stage(one, found), kStageTolerance);
    for (const auto& [name, values] : found.gradients) names.insert(name);
}

// Every mesh with 1F1B and with one more schedule, in turns; as many micro-batches as ranks, or three times that.
void expect_every_staged_mesh(TensorRun run) {
    const Step one = run_alone(run);
    std::size_t turn = 0;
    for (const MeshSizes& sizes : staged_meshes(run.config)) {
        const std::vector<pipeline::Options> all = schedules_of(run.config, sizes.pp);
        for (const std::string& name : {std::string("1F1B"), all[turn++ % all.size()].schedule}) {
            for (const pipeline::Options& options : all) {
                if (options.schedule != name) continue;
                run.options.pipeline = options;
                run.options.pipeline.microbatches = turn % 2 == 0 ? 0 : 3 * sizes.pp;
                const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(sizes) + " " + name);
                std::set<std::string> names;
                test::run_fibers(sizes.ranks(), 7, [&](const std::shared_ptr<comm::Communicator>& world) {
                    expect_stage(world, sizes, run, one, names);
                });
                EXPECT_EQ(names.size(), one.gradients.size());
                if (::testing::Test::HasFailure()) return;
            }
        }
    }
}

TEST(StageMesh, LlamaWithBiases) {
    TensorRun run = tensor_run(llama_with_biases(), 3);
    run.config.num_hidden_layers = 6;
    expect_every_staged_mesh(run);
}

TEST(StageMesh, Qwen2Tied) {
    TensorRun run = tensor_run(qwen2_tied(), 1);
    run.config.num_hidden_layers = 6;
    run.options.max_tokens_per_rank = 16;  // several micro-batches of one batch
    run.options.sequence_parallel = false;
    expect_every_staged_mesh(run);
}

TEST(StageMesh, Qwen3OfFewKvHeads) {
    TensorRun run = tensor_run(qwen3_of_few_kv_heads(), 3);
    run.config.num_hidden_layers = 7;
    run.options.reduce_every_micro_batch = false;
    run.options.checkpointing = Checkpointing::full;
    run.options.value_head = true;
    run.loss.value_coef = 0.5f;
    expect_every_staged_mesh(run);
}

// See every_mesh_test.cpp.
TEST(StageMesh, GradientsWrittenOverNan) {
    for (const bool tied : {false, true}) {
        TensorRun run = tensor_run(tied ? qwen2_tied() : llama_with_biases(), 1);
        run.after_nan = true;
        run.config.num_hidden_layers = 4;
        run.options.value_head = true;
        run.options.max_tokens_per_rank = 16;
        run.options.shard_axes = {"dp_shard"};
        run.options.reduce_every_micro_batch = tied;
        expect_every_staged_mesh(run);
    }
}

// Ranks that meet at each transfer, as threads do.
TEST(StageMesh, TransfersThatMeet) {
    TensorRun run = tensor_run(qwen2_tied(), 3);
    run.config.num_hidden_layers = 6;
    run.options.max_tokens_per_rank = 16;
    const Step one = run_alone(run);
    for (const MeshSizes& sizes : std::vector<MeshSizes>{{1, 1, 0, 0, 2},
                                                         {1, 1, 0, 0, 3},
                                                         {1, 1, 0, 0, 4},
                                                         {1, 1, 0, 0, 8},
                                                         {2, 1, 0, 2, 2},
                                                         {1, 2, 0, 0, 3}}) {
        for (const pipeline::Options& options : schedules_of(run.config, sizes.pp)) {
            run.options.pipeline = options;
            const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(sizes) + " " + options.schedule);
            comm::run_threads(sizes.ranks(), [&](const std::shared_ptr<comm::Communicator>& world) {
                std::set<std::string> names;
                expect_stage(world, sizes, run, one, names);
            });
        }
    }
}

TEST(StageMesh, MoreStagesThanLayersAreRefusedOnEveryRank) {
    comm::run_threads(5, [](const std::shared_ptr<comm::Communicator>& world) {
        EXPECT_NE(test::error_of([&] {
                      Policy(make_mesh(world, {1, 1, 0, 0, 5}), qwen2_tied(), {});
                  }).find("5 stages for 2 layers"),
                  std::string::npos);
    });
}

}  // namespace
}  // namespace tandem::trainer::testing
