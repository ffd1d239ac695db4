// What the ranks of the tp axis pass to each other lies where peers read it: nothing is copied into staging first.
#include <gtest/gtest.h>

#include "common/comm/launch.h"
#include "common/device/memory.h"
#include "tests/unit/trainer/tensor_parallel/tensor_run.h"

namespace tandem::trainer::testing {
namespace {

TEST(InPlace, BlocksMeetWithoutStaging) {
    model::ModelConfig config = qwen2_tied();
    config.hidden_size = 512;  // a few rows are more than a call carries in line
    TensorRun run = tensor_run(config, 1);
    for (const bool cut : {false, true}) {
        run.options.sequence_parallel = cut;
        for (const Checkpointing checkpointing : {Checkpointing::none, Checkpointing::full}) {
            run.options.checkpointing = checkpointing;
            reset_memory_peaks();
            comm::run_threads(2, [&](const std::shared_ptr<comm::Communicator>& world) {
                Policy policy(make_mesh(world, {.tp = 2}), run.config, run.options);
                policy.logprobs(run.batches[0]);
                policy.accumulate(run.batches[0], run.loss);
                policy.apply(1e-3);
            });
            EXPECT_EQ(memory_stats("comm_staging").peak_bytes, 0u) << "sequence_parallel " << cut;
        }
    }
}

}  // namespace
}  // namespace tandem::trainer::testing
