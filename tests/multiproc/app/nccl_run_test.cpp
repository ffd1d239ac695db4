// Runs whose weights go over NCCL to an engine on a GPU of its own, on emulated GPUs: the same numbers as on
// the CPU, bit for bit; what is refused before anything starts; and how a run ends when a part of it dies.
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/multiproc/app/program.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

Words with(Words one, const Words& other) {
    one.insert(one.end(), other.begin(), other.end());
    return one;
}

class NcclRun : public testing::Test {
  protected:
    std::unique_ptr<Program> start(const std::string& name, const Words& values, int gpus) const {
        const Words all = with({"name=" + name, "held_out=16", "mesh.cp=1"}, values);
        return std::make_unique<Program>(tiny_run(folder.path(), all),
                                         Words{"TANDEM_EMULATED_GPUS=" + std::to_string(gpus)});
    }
    // A model of several buckets, on the CPU and then over NCCL.
    void expect_the_cpus_run(const Words& values, const Words& over_nccl, int gpus) const {
        const Words all = with({"sft.steps=2", "grpo.steps=2", "model.hidden_size=128",
                                "model.intermediate_size=384", "model.layers=3", "sync.bucket_mib=1"},
                               values);
        const auto cpu = start("cpu", all, 0);
        ASSERT_EQ(cpu->wait(), 0) << cpu->err();
        const auto gpu =
            start("gpu", with(with(all, {"device=cuda", "sync.transport=nccl"}), over_nccl), gpus);
        ASSERT_EQ(gpu->wait(), 0) << gpu->err();
        EXPECT_THAT(gpu->err(), HasSubstr("over NCCL"));
        const auto metrics = timeless_metrics(folder / "cpu");
        EXPECT_EQ(metrics.size(), 6U);  // 2 + 2 steps, two evaluations
        EXPECT_EQ(metrics, timeless_metrics(folder / "gpu"));
        EXPECT_EQ(read_file(folder / "cpu/samples.jsonl"), read_file(folder / "gpu/samples.jsonl"));
        EXPECT_TRUE(read_file(folder / "cpu/checkpoint/model.safetensors") ==
                    read_file(folder / "gpu/checkpoint/model.safetensors"));
        const auto summary = nlohmann::json::parse(read_file(folder / "gpu/summary.json"));
        EXPECT_EQ(summary["weights_match"], true);
    }
    Folder folder;
};

// The ranks share the first GPU: the last one is the engine's.
TEST_F(NcclRun, TwoRanksSendToAnEngineOfTheirHost) {
    expect_the_cpus_run({"mesh.dp=2"}, {"sync.nccl_form=send"}, 2);
}

TEST_F(NcclRun, TwoRanksBroadcastToAnEngineThatSleepsInBetween) {
    expect_the_cpus_run(
        {"mesh.dp=2", "engine.dtype=bf16", "memory.trainer_sleep=all", "memory.engine_sleep=all"},
        {"sync.nccl_form=broadcast"}, 3);
}

TEST_F(NcclRun, WhatItCannotDoIsRefusedBeforeAnythingStarts) {
    struct Case {
        Words values;
        int gpus;
        std::string key, words;
    };
    const Words nccl{"device=cuda", "sync.transport=nccl"};
    for (const Case& one : std::vector<Case>{
             {nccl, 1, "sync.transport", "refuses two ranks on one GPU"},
             {nccl, 1, "sync.transport", "use cuda_ipc"},
             {{"sync.transport=nccl"}, 2, "sync.transport", "run.device is cpu"},
             {{"sync.transport=cuda_ipc"}, 2, "sync.transport", "run.device is cpu"},
             {with(nccl, {"sync.mode=direct"}), 2, "sync.mode", "use gather instead of direct"},
             {with(nccl, {"sync.mode=alias"}), 2, "sync.mode", "use gather instead of alias"},
             {with(nccl, {"sync.mode=delta"}), 2, "sync.mode", "use gather instead of delta"},
             {{"device=cuda", "sync.nccl_form=send"}, 2, "sync.nccl_form", "unless sync.transport is nccl"},
             {{"device=cuda", "sync.transport=cuda_ipc", "sync.mode=delta"}, 1, "sync.transport", "use shm"},
             {{"device=cuda", "sync.transport=shm", "sync.mode=alias"}, 1, "sync.transport", "use cuda_ipc"},
             {{"sync.transport=rdma"}, 1, "sync.transport", "\"shm\", \"cuda_ipc\", \"nccl\""},
         }) {
        const auto program = start("refused", one.values, one.gpus);
        EXPECT_EQ(program->wait(), 2) << one.words;
        EXPECT_THAT(program->err(), AllOf(HasSubstr(one.key), HasSubstr(one.words)));
        EXPECT_TRUE(folder.empty()) << one.words;
    }
}

// A run that would take minutes, caught in the middle of its reinforcement.
class NcclFailure : public NcclRun {
  protected:
    void begin(const std::string& deadline_s = "5") {
        program =
            start("tiny",
                  {"sft.steps=1", "grpo.steps=100000", "mesh.dp=2", "device=cuda", "sync.transport=nccl",
                   "run.deadline_s=15", "engine.deadline_s=" + deadline_s, "sync.deadline_s=" + deadline_s},
                  2);
        ASSERT_TRUE(reinforces(folder)) << program->err();
        children = program->children();
        ASSERT_EQ(children.size(), 3U);  // two ranks and the engine
    }
    // Signals a part of the job; what the program says when it has ended, which it must soon.
    std::string end_of(const std::string& child, int signal) {
        EXPECT_EQ(::kill(children.at(child), signal), 0);
        EXPECT_EQ(program->wait(std::chrono::seconds(25)), 1);
        expect_all_end(children);
        EXPECT_FALSE(fs::exists(folder / "tiny"));
        return program->err();
    }
    std::unique_ptr<Program> program;
    std::map<std::string, pid_t> children;
};

TEST_F(NcclFailure, AKilledEngineEndsTheJobByName) {
    ASSERT_NO_FATAL_FAILURE(begin());
    EXPECT_THAT(
        end_of("engine", SIGKILL),
        testing::ContainsRegex("tandem-train: engine http://127.0.0.1:[0-9]+ was killed by signal 9"));
}

TEST_F(NcclFailure, AnEngineThatHangsIsNamedWithinTheDeadline) {
    ASSERT_NO_FATAL_FAILURE(begin("1.5"));
    EXPECT_THAT(
        end_of("engine", SIGSTOP),
        testing::ContainsRegex("tandem-train: rank [01] exited .*(engine |http://127).*(deadline|answer)"));
}

TEST_F(NcclFailure, TheRankThatSendsIsNamedWhenItIsKilled) {
    ASSERT_NO_FATAL_FAILURE(begin());
    EXPECT_THAT(end_of("rank 0", SIGKILL), HasSubstr("tandem-train: rank 0 was killed by signal 9"));
}

TEST_F(NcclFailure, SoIsAnotherRank) {
    ASSERT_NO_FATAL_FAILURE(begin());
    EXPECT_THAT(end_of("rank 1", SIGKILL), HasSubstr("tandem-train: rank 1 was killed by signal 9"));
}

}  // namespace
}  // namespace tandem::test
