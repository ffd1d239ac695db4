// Whole runs with device = "cuda" on emulated GPUs, whose ops are the CPU's: the same numbers, samples and
// checkpoints as on the CPU, bit for bit. And what a machine without a GPU answers.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/multiproc/app/program.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

class DeviceRun : public testing::Test {
  protected:
    std::vector<std::string> command(const std::string& name, std::vector<std::string> values) const {
        for (const char* value : {"sft.steps=3", "grpo.steps=3", "held_out=16", "run.if_exists=overwrite"})
            values.emplace_back(value);
        values.push_back("name=" + name);
        return tiny_run(folder.path(), values);
    }
    void finish(const std::string& name, const std::vector<std::string>& values, int gpus) const {
        Program program(command(name, values), {"TANDEM_EMULATED_GPUS=" + std::to_string(gpus)});
        ASSERT_EQ(program.wait(), 0) << program.err();
    }
    void expect_same(const std::string& a, const std::string& b) const {
        const auto metrics = timeless_metrics(folder / a);
        EXPECT_EQ(metrics.size(), 8U);  // 3 + 3 steps, two evaluations
        EXPECT_EQ(metrics, timeless_metrics(folder / b));
        EXPECT_EQ(read_file(folder / (a + "/samples.jsonl")), read_file(folder / (b + "/samples.jsonl")));
        const std::string weights = read_file(folder / (a + "/checkpoint/model.safetensors"));
        EXPECT_GT(weights.size(), 190'000U);
        EXPECT_TRUE(weights == read_file(folder / (b + "/checkpoint/model.safetensors")));
        const json summary = json::parse(read_file(folder / (b + "/summary.json")));
        EXPECT_EQ(summary["weights_match"], true);
    }
    void expect_the_cpus_run(std::vector<std::string> values, int gpus,
                             const std::string& device = "device=cuda") const {
        finish("cpu", values, 0);
        values.push_back(device);
        finish("gpu", values, gpus);
        expect_same("cpu", "gpu");
    }
    std::string refusal(const std::vector<std::string>& values,
                        const std::vector<std::string>& environment = {}) const {
        Program program(command("refused", values), environment);
        EXPECT_EQ(program.wait(), 2) << program.err();
        EXPECT_FALSE(std::filesystem::exists(folder / "refused"));
        return program.err();
    }
    Folder folder;
};

TEST_F(DeviceRun, OneRank) {
    expect_the_cpus_run({"mesh.dp=1", "mesh.cp=1"}, 1);
}

TEST_F(DeviceRun, OneRankInBf16ThatComputesLayersAgain) {
    expect_the_cpus_run(
        {"mesh.dp=1", "mesh.cp=1", "train.compute_dtype=bf16", "engine.dtype=bf16", "checkpoint.dtype=bf16",
         "memory.activation_checkpointing=full", "memory.engine_sleep=kv_cache"},
        1, "run.device=cuda");
}

TEST_F(DeviceRun, FourRanksOnTwoGpus) {
    expect_the_cpus_run({"mesh.dp=2", "mesh.cp=2", "sync.mode=gather", "loss.algorithm=ppo",
                         "loss.kl_coef=0.01", "train.logits_chunk_rows=9"},
                        2);
}

TEST_F(DeviceRun, EnginesReadTheShardsThemselves) {
    expect_the_cpus_run({"mesh.dp=2", "mesh.cp=1", "sync.mode=direct"}, 1);
}

TEST_F(DeviceRun, EnginesReadTheirWeightsInPlace) {
    expect_the_cpus_run({"mesh.dp=2", "mesh.cp=1", "sync.mode=alias", "engine.dtype=bf16"}, 1);
}

// Through the host's memory as a user who cannot use CUDA IPC asks for it, then by name what is taken anyhow.
TEST_F(DeviceRun, WeightsTakeTheWayThatIsAskedFor) {
    expect_the_cpus_run({"mesh.dp=2", "mesh.cp=1", "sync.transport=shm"}, 1);
    finish("by_handle", {"mesh.dp=2", "mesh.cp=1", "sync.transport=cuda_ipc", "device=cuda"}, 1);
    expect_same("cpu", "by_handle");
}

TEST_F(DeviceRun, BothSleepWhileTheOtherWorks) {
    expect_the_cpus_run({"mesh.dp=2", "mesh.cp=1", "memory.trainer_sleep=all", "memory.engine_sleep=all"}, 1);
}

TEST_F(DeviceRun, StateLivesInTheHostsMemory) {
    expect_the_cpus_run({"mesh.dp=2", "mesh.cp=1", "memory.offload=all", "memory.trainer_sleep=optimizer",
                         "loss.kl_coef=0.01", "train.compute_dtype=bf16", "checkpoint.every=2",
                         "engine.disable_cuda_graph=true"},
                        1);
}

TEST_F(DeviceRun, MemoryIsAsPredicted) {
    // Large enough that the fixed buffers of checkpoints do not decide.
    const std::vector<std::string> sizes{"model.hidden_size=256",
                                         "model.intermediate_size=704",
                                         "model.layers=6",
                                         "model.vocab_size=4096",
                                         "mesh.dp=2",
                                         "mesh.cp=1",
                                         "sft.batch=16",
                                         "grpo.prompts=4",
                                         "grpo.updates=1",
                                         "device=cuda",
                                         "sync.bucket_mib=1"};
    for (const std::vector<std::string>& choice :
         std::vector<std::vector<std::string>>{{"memory.offload=none"},
                                               {"memory.offload=optimizer", "sync.mode=direct"},
                                               {"memory.trainer_sleep=optimizer", "sync.mode=alias"},
                                               {"memory.trainer_sleep=all", "memory.engine_sleep=all"}}) {
        auto values = sizes;
        values.insert(values.end(), choice.begin(), choice.end());
        finish("memory", values, 1);
        const json memory = json::parse(read_file(folder / "memory/summary.json"))["memory"];
        EXPECT_NEAR(memory["ratio"].get<double>(), 1, 0.1) << choice[0] << memory.dump(1);
    }
}

TEST_F(DeviceRun, ReplicasAndZigzagOnOneGpu) {
    expect_the_cpus_run({"mesh.dp=2", "mesh.dp_replicate=2", "mesh.cp=2", "train.context_mode=zigzag",
                         "sync.mode=delta", "train.reduce_every_micro_batch=false", "train.micro_batch=5"},
                        1);
}

TEST_F(DeviceRun, GoesOnFromACheckpointOfEitherDevice) {
    const std::vector<std::string> two{"mesh.dp=2", "mesh.cp=1", "loss.kl_coef=0.01"};
    const auto with = [&](const std::vector<std::string>& more) {
        auto values = two;
        values.insert(values.end(), more.begin(), more.end());
        return values;
    };
    finish("cpu", with({"checkpoint.every=2"}), 0);
    finish("gpu", with({"checkpoint.every=2", "device=cuda"}), 1);
    expect_same("cpu", "gpu");
    const std::string from = "run.resume=" + (folder / "cpu/checkpoints/step-4");
    finish("resumed", with({from, "device=cuda"}), 1);
    expect_same("cpu", "resumed");
}

TEST_F(DeviceRun, IsRefusedWhereItCannotWorkBeforeAnythingStarts) {
    if (!std::filesystem::exists("/dev/nvidia0")) {  // without CUDA in the build, or without a driver
        const std::string said = refusal({"device=cuda"});
        EXPECT_THAT(said, AllOf(HasSubstr("run.device"),
                                AnyOf(HasSubstr("no CUDA"), HasSubstr("no GPU can be used"))));
        EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;  // once, and not in other words too
    }
    EXPECT_THAT(refusal({"device=tpu"}), HasSubstr("run.device"));
    const std::vector<std::string> emulated{"TANDEM_EMULATED_GPUS=1"};
    for (const char* leaves : {"memory.trainer_sleep=all", "memory.offload=parameters"}) {
        EXPECT_THAT(refusal({"device=cuda", "sync.mode=direct", leaves}, emulated),
                    AllOf(HasSubstr("sync.mode"), HasSubstr("use gather or alias")));
    }
}

}  // namespace
}  // namespace tandem::test
