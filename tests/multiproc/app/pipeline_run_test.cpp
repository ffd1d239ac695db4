// Runs of tandem-train with a pp axis: every schedule, fresh models and checkpoints that are those of any mesh, every way to the
// engine, devices, resuming elsewhere, ranks that die, and what is refused.
#include <gmock/gmock.h>

#include <csignal>
#include <fstream>

#include "tests/multiproc/app/mesh_run.h"

namespace tandem::test {
namespace {

using testing::HasSubstr;

class PipelineRun : public MeshRun {
  protected:
    std::string file(const std::string& name, const std::string& text) const {
        std::ofstream(folder / name) << text;
        return folder / name;
    }
};

TEST_F(PipelineRun, AFreshModelIsTheSameFileOnEveryMesh) {
    for (const char* tied : {"true", "false"}) {
        const Words nothing{"sft.steps=0", "grpo.steps=0", "held_out=4", "model.layers=4",
                            std::string("model.tie_embeddings=") + tied};
        finish("one", {"dp=1", "cp=1"}, nothing);
        const std::string one = weights("one");
        ASSERT_GT(one.size(), 100'000U);
        const std::vector<std::pair<Words, std::string>> table{
            {{"dp=1", "cp=1", "pp=2"}, "1F1B"},
            {{"dp=2", "cp=1", "pp=2"}, "ZBVZeroBubble"},
            {{"dp=1", "cp=1", "tp=2", "pp=2"}, "Interleaved1F1B"},
            {{"dp=1", "cp=1", "pp=4"}, "GPipe"}};
        for (const auto& [mesh, schedule] : table) {
            Words values = nothing;
            values.push_back("pipeline.schedule=" + schedule);
            finish("cut", mesh, values);
            EXPECT_TRUE(weights("cut") == one) << mesh.back() << " " << schedule << " " << tied;
            std::filesystem::remove_all(folder / "cut");
        }
        std::filesystem::remove_all(folder / "one");
    }
}

TEST_F(PipelineRun, EveryModeBringsTheWeightsToTheEngine) {
    for (const char* mode : {"gather", "direct", "alias", "delta"}) {
        finish(mode, {"dp=1", "cp=1", "pp=2"},
               {"sft.steps=3", "grpo.steps=3", std::string("sync.mode=") + mode});
        const json s = summary(mode);
        EXPECT_EQ(s["weights_match"], true) << mode;
        EXPECT_EQ(s["weight_version"], 4) << mode;
        EXPECT_LE(s["logprob_max_abs_diff"], 1e-5) << mode;
        EXPECT_EQ(s["mesh"], (json{{"dp", 1}, {"cp", 1}, {"pp", 2}}));
        EXPECT_TRUE(weights(mode) == weights("gather")) << mode;
        EXPECT_GT(s["pipeline"]["makespan_ms"], s["pipeline"]["bubble_ms"]);
        EXPECT_THAT(read_file(folder / (std::string(mode) + "/report.html")), HasSubstr("Last update: "));
    }
    // With values, and a reference model.
    finish("ppo", {"dp=2", "cp=1", "pp=2"},
           {"sft.steps=3", "grpo.steps=3", "loss.algorithm=ppo", "loss.kl_coef=0.01", "memory.offload=all",
            "memory.activation_checkpointing=full"});
    EXPECT_EQ(summary("ppo")["weights_match"], true);
    // Its checkpoint is a model for any mesh.
    finish("again", {"dp=2", "cp=1"},
           {"sft.steps=0", "grpo.steps=0", "model.path=" + (folder / "gather/checkpoint")});
    EXPECT_TRUE(weights("again") == weights("gather"));
    finish("and_back", {"dp=1", "cp=1", "tp=2", "pp=2"},
           {"sft.steps=0", "grpo.steps=0", "model.path=" + (folder / "gather/checkpoint")});
    EXPECT_TRUE(weights("and_back") == weights("gather"));
}

TEST_F(PipelineRun, MemoryIsAsPredicted) {
    for (const char* schedule : {"1F1B", "InterleavedZeroBubble"}) {
        // Large enough that the fixed buffers of checkpoints do not decide.
        finish(schedule, {"dp=2", "cp=1", "pp=2"},
               {"model.hidden_size=256", "model.intermediate_size=704", "model.layers=8",
                "model.vocab_size=4096", "sft.steps=2", "sft.batch=64", "grpo.steps=2", "held_out=4",
                "sync.bucket_mib=1", std::string("pipeline.schedule=") + schedule});
        const json memory = summary(schedule)["memory"];
        EXPECT_NEAR(memory["ratio"].get<double>(), 1, 0.1) << schedule << memory.dump(1);
    }
}

// One model, seven orders of work, and two lists of a file: the same losses.
TEST_F(PipelineRun, EveryScheduleTrainsAlike) {
    const Words values{"sft.steps=5", "grpo.steps=2", "held_out=16", "model.layers=4", "sft.batch=64"};
    finish("one", {"dp=1", "cp=1"}, values);
    const auto one = timeless_metrics(folder / "one");
    const auto expect_alike = [&](const std::string& name, const Words& more) {
        Words all = values;
        all.insert(all.end(), more.begin(), more.end());
        finish(name, {"dp=1", "cp=1", "pp=2"}, all);
        EXPECT_EQ(summary(name)["weights_match"], true) << name;
        const auto found = timeless_metrics(folder / name);
        for (std::size_t i = 0; i < 5; ++i)  // of the warm start, which samples nothing
            EXPECT_NEAR(found[i]["loss"].get<double>(), one[i]["loss"].get<double>(), 1e-5)
                << name << " " << i;
    };
    for (const char* schedule : {"GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble",
                                 "ZBVZeroBubble", "dualpipev"})
        expect_alike(schedule, {std::string("pipeline.schedule=") + schedule, "pipeline.microbatches=4"});
    const std::string compute = file("compute.csv", "0F0,0F1,0B0,0B1\r\n,1F0,1B0,1F1,1B1\r\n");
    expect_alike("csv", {"pipeline.csv=" + compute});
    const std::string comms = file("comms.csv",
                                   "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,"
                                   "0REDUCE_GRAD,0RESHARD\r\n"
                                   "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,"
                                   "1REDUCE_GRAD,1RESHARD\r\n");
    expect_alike("lowered", {"pipeline.csv=" + comms});
    expect_alike("uneven", {"pipeline.split=[\"model.layers.1\"]"});
}

TEST_F(PipelineRun, OnGpusAsOnTheCpu) {
    expect_same_on_gpus({"dp=2", "cp=1", "pp=2"}, {"model.layers=4", "pipeline.schedule=ZBVZeroBubble"});
}

TEST_F(PipelineRun, GoesOnOnAnotherMeshAndBack) {
    expect_same_losses_elsewhere({{"dp=1", "cp=1", "tp=2", "pp=2"},
                                  {"dp=4", "cp=1"},
                                  {"dp=1", "cp=1", "pp=4"},
                                  {"dp=1", "cp=2", "pp=2"}});
}

TEST_F(PipelineRun, AKilledRankEndsTheJobByName) {
    expect_named({"dp=1", "cp=1", "pp=4"}, 2, SIGKILL, "tandem-train: rank 2 was killed by signal 9");
}

TEST_F(PipelineRun, ARankThatHangsIsNamedWithinTheDeadline) {
    expect_named({"dp=1", "cp=1", "pp=4"}, 2, SIGSTOP, "rank 2");
}

TEST_F(PipelineRun, WhatDoesNotFitIsRefusedBeforeAnythingStarts) {
    const Words two{"dp=1", "cp=1", "pp=2"};
    const std::vector<std::pair<Words, std::string>> table{
        {{"model.layers=2", "pipeline.first_stage_less_layers=3", "pipeline.last_stage_less_layers=0"},
         "mesh.pp: 3 layers fewer on the first stage and 0 on the last, where a stage has 2"},
        {{"pipeline.schedule=1f1c"}, "pipeline.schedule: there is no schedule 1f1c; known: GPipe, 1F1B"},
        {{"pipeline.schedule=ZBVZeroBubble", "pipeline.stages_per_rank=3"},
         "pipeline.stages_per_rank: ZBVZeroBubble has exactly 2 stages a rank, not 3"},
        {{"pipeline.schedule=Interleaved1F1B", "model.layers=6", "pipeline.microbatches=5"},
         "pipeline.microbatches: Interleaved1F1B with pp 2 runs 5 micro-batches in 2 rounds"},
        {{"pipeline.microbatches=1"},
         "pipeline.microbatches: 1F1B with pp 2 needs at least 2 micro-batches, not 1"},
        {{"model.layers=8", "pipeline.layers_per_stage=4"},
         "pipeline.layers_per_stage: layers_per_stage 4 makes 3 stages"},
        {{"pipeline.split=[\"model.layers.7\"]"}, "pipeline.split: split: model.layers.7 begins no stage"},
        {{"pipeline.split=[\"model.layers.1\", \"model.layers.1\", \"norm\"]", "pipeline.schedule=GPipe"},
         "is not behind the stage before it"},
        {{"pipeline.split=model.layers.1"}, "pipeline.split: expects an array of text"},
        {{"pipeline.csv=/nowhere.csv"}, "/nowhere.csv"}};
    for (const auto& [values, message] : table) {
        Program program(command("refused", two, values));
        EXPECT_EQ(program.wait(), 2) << message;
        EXPECT_THAT(program.err(), HasSubstr(message));
        EXPECT_TRUE(folder.empty()) << message;
    }
}

}  // namespace
}  // namespace tandem::test
