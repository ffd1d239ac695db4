// Runs of tandem-train with a tp axis: fresh models and checkpoints that are those of any mesh, every way to the engine,
// devices, resuming elsewhere, ranks that die, and what is refused.
#include <gmock/gmock.h>

#include <csignal>

#include "tests/multiproc/app/mesh_run.h"

namespace tandem::test {
namespace {

using testing::HasSubstr;

class TensorRun : public MeshRun {};

TEST_F(TensorRun, AFreshModelIsTheSameFileOnEveryMesh) {
    const Words nothing{"sft.steps=0", "grpo.steps=0", "held_out=4", "model.tie_embeddings=false",
                        "model.vocab_size=19"};
    finish("one", {"dp=1", "cp=1"}, nothing);
    const std::string one = weights("one");
    ASSERT_GT(one.size(), 100'000U);
    for (const Words& mesh :
         std::vector<Words>{{"dp=1", "cp=1", "tp=2"}, {"dp=2", "cp=1", "tp=2"}, {"dp=1", "cp=1", "tp=4"}}) {
        finish("cut", mesh, nothing);
        EXPECT_TRUE(weights("cut") == one) << mesh.back();
        std::filesystem::remove_all(folder / "cut");
    }
}

TEST_F(TensorRun, EveryModeBringsTheWeightsToTheEngine) {
    for (const char* mode : {"gather", "direct", "alias", "delta"}) {
        finish(mode, {"dp=1", "cp=1", "tp=2"},
               {"sft.steps=3", "grpo.steps=3", std::string("sync.mode=") + mode});
        const json s = summary(mode);
        EXPECT_EQ(s["weights_match"], true) << mode;
        EXPECT_EQ(s["weight_version"], 4) << mode;
        EXPECT_LE(s["logprob_max_abs_diff"], 2e-6) << mode << ": the engine sums as the ranks do";
        EXPECT_EQ(s["mesh"], (json{{"dp", 1}, {"cp", 1}, {"tp", 2}}));
        EXPECT_TRUE(weights(mode) == weights("gather")) << mode;
    }
    // Its checkpoint is a model for any mesh.
    // With values, and a reference model.
    finish("ppo", {"dp=2", "cp=1", "tp=2"},
           {"sft.steps=3", "grpo.steps=3", "loss.algorithm=ppo", "loss.kl_coef=0.01", "memory.offload=all"});
    EXPECT_EQ(summary("ppo")["weights_match"], true);
    finish("again", {"dp=2", "cp=1"},
           {"sft.steps=0", "grpo.steps=0", "model.path=" + (folder / "gather/checkpoint")});
    EXPECT_TRUE(weights("again") == weights("gather"));
}

TEST_F(TensorRun, InBf16TheEngineRoundsASumOnceAsTheRanksDo) {
    for (const std::string tp : {"2", "4"}) {
        finish(tp, {"dp=1", "cp=1", "tp=" + tp},
               {"sft.steps=30", "grpo.steps=3", "train.compute_dtype=bf16", "engine.dtype=bf16"});
        EXPECT_LE(summary(tp)["logprob_max_abs_diff"], 2e-6) << tp;
    }
}

TEST_F(TensorRun, OnGpusAsOnTheCpu) {
    expect_same_on_gpus({"dp=2", "cp=1", "tp=2"}, {});
}

TEST_F(TensorRun, GoesOnOnAnotherMeshAndBack) {
    expect_same_losses_elsewhere({{"dp=2", "cp=1", "tp=2"}, {"dp=4", "cp=1"}, {"dp=1", "cp=1", "tp=4"}});
}

TEST_F(TensorRun, AKilledRankEndsTheJobByName) {
    expect_named({"dp=1", "cp=1", "tp=4"}, 2, SIGKILL, "tandem-train: rank 2 was killed by signal 9");
}

TEST_F(TensorRun, ARankThatHangsIsNamedWithinTheDeadline) {
    expect_named({"dp=1", "cp=1", "tp=4"}, 2, SIGSTOP, "rank 2");
}

TEST_F(TensorRun, WhatDoesNotFitIsRefusedBeforeAnythingStarts) {
    const std::vector<std::pair<Words, std::string>> table{
        {{"tp=3"},
         "mesh.tp: tensor parallelism 3 does not fit 4 query heads and 2 key and value heads; 1, 2, 4 do"},
        {{"tp=8"}, "mesh.tp: tensor parallelism 8 does not fit"},
        {{"tp=0"}, "mesh.tp: expects a whole number from 1 to 1024, got 0"},
        {{"ep=2"}, "mesh.ep: expert parallelism is not there yet"},
        {{"etp=2"}, "mesh.etp: expert parallelism is not there yet"}};
    for (const auto& [mesh, message] : table) {
        Program program(command("refused", mesh, {}));
        EXPECT_EQ(program.wait(), 2) << message;
        EXPECT_THAT(program.err(), HasSubstr(message));
        EXPECT_TRUE(folder.empty()) << message;
    }
    Program smollm2(command("refused", {"tp=2"}, {"model.heads=9", "model.kv_heads=3"}));
    EXPECT_EQ(smollm2.wait(), 2);
    EXPECT_THAT(smollm2.err(), HasSubstr("9 query heads and 3 key and value heads; 1, 3, 9 do"));
}

}  // namespace
}  // namespace tandem::test
