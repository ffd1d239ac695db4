// Runs of tandem-train with a tp axis: fresh models and checkpoints that are those of any mesh, every way to the engine,
// devices, resuming elsewhere, ranks that die, and what is refused.
#include <gmock/gmock.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/multiproc/app/program.h"
#include "tests/support/named_shared_memory.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Words = std::vector<std::string>;

class TensorRun : public testing::Test {
  protected:
    Words command(const std::string& name, const Words& mesh, Words values) const {
        for (const std::string& degree : mesh) values.push_back("mesh." + degree);
        values.push_back("name=" + name);
        return tiny_run(folder.path(), values);
    }
    void finish(const std::string& name, const Words& mesh, const Words& values,
                const Words& environment = {}) const {
        Program program(command(name, mesh, values), environment);
        ASSERT_EQ(program.wait(), 0) << program.err();
    }
    json summary(const std::string& name) const {
        return json::parse(read_file(folder / (name + "/summary.json")));
    }
    std::string weights(const std::string& name) const {
        return read_file(folder / (name + "/checkpoint/model.safetensors"));
    }
    Folder folder;
};

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
        EXPECT_LE(s["logprob_max_abs_diff"], 1e-4) << mode;
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

TEST_F(TensorRun, OnGpusAsOnTheCpu) {
    const Words values{"sft.steps=3", "grpo.steps=3", "held_out=16"};
    const Words mesh{"dp=2", "cp=1", "tp=2"};
    finish("cpu", mesh, values);
    const auto on_gpus = [&](const std::string& name, const Words& more, int gpus) {
        Words all = values;
        all.insert(all.end(), more.begin(), more.end());
        all.emplace_back("device=cuda");
        finish(name, mesh, all, {"TANDEM_EMULATED_GPUS=" + std::to_string(gpus)});
        EXPECT_EQ(timeless_metrics(folder / "cpu"), timeless_metrics(folder / name));
        EXPECT_TRUE(weights("cpu") == weights(name));
    };
    on_gpus("gpu", {"memory.trainer_sleep=all"}, 2);
    on_gpus("nccl", {"sync.transport=nccl"}, 3);
}

// The losses are those of the run that stayed on its mesh.
TEST_F(TensorRun, GoesOnOnAnotherMeshAndBack) {
    const Words values{"sft.steps=24", "grpo.steps=0", "checkpoint.every=6", "checkpoint.keep=9",
                       "held_out=4"};
    const auto resumed = [&](const std::string& name, const Words& mesh, const std::string& from, int step) {
        Words all = values;
        all.push_back("run.resume=" + (folder / (from + "/checkpoints/step-" + std::to_string(step))));
        finish(name, mesh, all);
    };
    finish("stayed", {"dp=4", "cp=1"}, values);
    resumed("cut", {"dp=2", "cp=1", "tp=2"}, "stayed", 6);
    resumed("back", {"dp=4", "cp=1"}, "cut", 12);
    resumed("elsewhere", {"dp=1", "cp=1", "tp=4"}, "cut", 18);
    const auto stayed = timeless_metrics(folder / "stayed");
    for (const char* name : {"cut", "back", "elsewhere"}) {
        const auto found = timeless_metrics(folder / name);
        ASSERT_EQ(found.size(), stayed.size()) << name;
        for (std::size_t i = 0; i < found.size(); ++i) {
            if (!found[i].contains("loss")) continue;
            EXPECT_EQ(found[i]["step"], stayed[i]["step"]);
            EXPECT_NEAR(found[i]["loss"].get<double>(), stayed[i]["loss"].get<double>(), 1e-5)
                << name << " " << i;
        }
    }
}

class TensorFailure : public TensorRun {
  protected:
    void expect_named(int signal, const std::string& message) {
        const auto named_before = named_shared_memory();
        Program program(command("tiny", {"dp=1", "cp=1", "tp=4"},
                                {"sft.steps=1", "grpo.steps=100000", "run.deadline_s=3",
                                 "engine.deadline_s=2", "sync.deadline_s=2"}));
        ASSERT_TRUE(reinforces(folder)) << program.err();
        auto children = program.children();
        ASSERT_TRUE(children.contains("rank 2"));
        ASSERT_EQ(::kill(children["rank 2"], signal), 0);
        EXPECT_EQ(program.wait(std::chrono::seconds(30)), 1);
        EXPECT_THAT(program.err(), HasSubstr(message));
        expect_all_end(children);
        expect_no_shared_memory_left(named_before);
    }
};

TEST_F(TensorFailure, AKilledRankEndsTheJobByName) {
    expect_named(SIGKILL, "tandem-train: rank 2 was killed by signal 9");
}

TEST_F(TensorFailure, ARankThatHangsIsNamedWithinTheDeadline) {
    expect_named(SIGSTOP, "rank 2");
}

TEST_F(TensorRun, WhatDoesNotFitIsRefusedBeforeAnythingStarts) {
    const std::vector<std::pair<Words, std::string>> table{
        {{"tp=3"},
         "mesh.tp: tensor parallelism 3 does not fit 4 query heads and 2 key and value heads; 1, 2, 4 do"},
        {{"tp=8"}, "mesh.tp: tensor parallelism 8 does not fit"},
        {{"tp=0"}, "mesh.tp: expects a whole number from 1 to 1024, got 0"},
        {{"pp=2"}, "mesh.pp: pipeline parallelism is not there yet"},
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
