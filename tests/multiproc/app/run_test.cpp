// Whole runs of tandem-train with four ranks and an engine: what they leave, that they repeat bit for bit,
// that the checkpoint is a model.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/multiproc/app/program.h"
#include "tests/support/free_port.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

std::set<std::string> files_in(const std::string& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
    return names;
}

TEST(Run, LeavesEverythingUnderItsName) {
    Folder folder;
    Program program(tiny_run(folder.path()));
    ASSERT_EQ(program.wait(), 0) << program.err();
    EXPECT_EQ(files_in(folder.path()), std::set<std::string>{"tiny"});
    EXPECT_EQ(files_in(folder / "tiny"),
              (std::set<std::string>{"checkpoint", "config.toml", "engine.log", "metrics.jsonl",
                                     "report.html", "samples.jsonl", "summary.json", "trace.json"}));
    const json summary = json::parse(read_file(folder / "tiny/summary.json"));
    EXPECT_EQ(summary["world_size"], 4);
    EXPECT_EQ(summary["mesh"], (json{{"dp", 2}, {"cp", 2}}));
    EXPECT_EQ(summary["steps"], 10);
    EXPECT_EQ(summary["weight_version"], 11);
    EXPECT_EQ(summary["weights_match"], true);
    EXPECT_LE(summary["logprob_max_abs_diff"], 1e-4);
    EXPECT_GT(summary["sync_ms_median"], 0);
    EXPECT_GT(summary["speed_of_light_ratio"], 0);
    for (const char* phase : {"prepare", "pause", "gather", "copy", "load", "resume", "finish", "pack"}) {
        EXPECT_TRUE(summary["sync_phase_ms"].contains(phase)) << phase;
    }
    EXPECT_GT(summary["sync_phase_ms"]["pack"], 0) << "each version was used, and tandem-engine packs";
    // The speed of light was measured before the first step; no publish waited for it.
    for (const char* from : {"predicted", "measured"}) {
        const json& phases = summary["memory"][from]["phases"];
        EXPECT_TRUE(phases["connect"]["by_tag"].contains("speed of light")) << from;
        EXPECT_FALSE(phases["sync"]["by_tag"].contains("speed of light")) << from;
    }
    std::set<std::string> categories;
    const json trace = json::parse(read_file(folder / "tiny/trace.json"));
    std::set<int> processes;
    for (const auto& event : trace["traceEvents"]) {
        processes.insert(event["pid"].get<int>());
        if (event.contains("cat")) categories.insert(event["cat"]);
    }
    EXPECT_EQ(processes, (std::set<int>{0, 1, 2, 3}));
    EXPECT_TRUE(categories.contains("rollout") && categories.contains("train") &&
                categories.contains("sync"));
    EXPECT_THAT(program.out(), HasSubstr("tiny/report.html"));
    EXPECT_THAT(program.err(), HasSubstr("grpo"));

    // Again under the same name, the earlier results are to be replaced. As JSON: stdout is the summary,
    // nothing else.
    auto command = tiny_run(folder.path(), {"seed=1", "run.if_exists=overwrite"});
    command.push_back("--json");
    Program again(command);
    ASSERT_EQ(again.wait(), 0) << again.err();
    EXPECT_EQ(json::parse(again.out())["seed"], 1);
    EXPECT_EQ(json::parse(read_file(folder / "tiny/summary.json"))["seed"], 1);
    EXPECT_EQ(files_in(folder.path()), std::set<std::string>{"tiny"});
}

TEST(Run, RepeatsBitForBit) {
    Folder folder;
    for (const char* name : {"a", "b"}) {
        Program program(tiny_run(folder.path(), {std::string("name=") + name, "seed=7"}));
        ASSERT_EQ(program.wait(), 0) << program.err();
    }
    const auto a = timeless_metrics(folder / "a"), b = timeless_metrics(folder / "b");
    ASSERT_EQ(a.size(), 22u);  // 10 + 10 steps, two evaluations
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], b[i]);
    EXPECT_EQ(read_file(folder / "a/samples.jsonl"), read_file(folder / "b/samples.jsonl"));
    const std::string weights = read_file(folder / "a/checkpoint/model.safetensors");
    EXPECT_GT(weights.size(), 390'000u);
    EXPECT_TRUE(weights == read_file(folder / "b/checkpoint/model.safetensors"));

    Program other(tiny_run(folder.path(), {"name=c", "seed=8"}));
    ASSERT_EQ(other.wait(), 0) << other.err();
    EXPECT_FALSE(weights == read_file(folder / "c/checkpoint/model.safetensors"));
}

TEST(Run, EveryWayOfSyncingTrainsTheSameModel) {
    Folder folder;
    std::string weights;
    for (const std::string mode : {"gather", "direct", "alias", "delta"}) {
        SCOPED_TRACE(mode);
        Program program(tiny_run(folder.path(), {"name=" + mode, "sync.mode=" + mode}));
        ASSERT_EQ(program.wait(), 0) << program.err();
        const json summary = json::parse(read_file(folder / (mode + "/summary.json")));
        EXPECT_EQ(summary["sync_mode"], mode);
        EXPECT_EQ(summary["weights_match"], true);
        EXPECT_EQ(summary["weight_version"], 11);
        EXPECT_LE(summary["logprob_max_abs_diff"], 1e-4);
        const std::string trained = read_file(folder / (mode + "/checkpoint/model.safetensors"));
        if (weights.empty()) weights = trained;
        EXPECT_TRUE(trained == weights);
    }
}

// One rank of cp: a ring of several adds attention up in another order than the engine does.
TEST(Run, EngineAndTrainerAgreeToTheBit) {
    Folder folder;
    for (const std::string dtype : {"fp32", "bf16"}) {
        SCOPED_TRACE(dtype);
        Program program(tiny_run(folder.path(), {"name=" + dtype, "mesh.dp=2", "mesh.cp=1",
                                                 "train.compute_dtype=" + dtype, "engine.dtype=" + dtype}));
        ASSERT_EQ(program.wait(), 0) << program.err();
        const json summary = json::parse(read_file(folder / (dtype + "/summary.json")));
        EXPECT_EQ(summary["logprob_max_abs_diff"], 0.0);
    }
}

TEST(Run, TheCheckpointIsAModelToGoOnFrom) {
    Folder folder;
    Program first(tiny_run(folder.path(), {"sft.steps=60"}));
    ASSERT_EQ(first.wait(), 0) << first.err();
    // The same weights, prompts and seeds on another mesh: the same answers, and so the same reward.
    Program next(tiny_run(folder.path(), {"name=next", "model.path=" + (folder / "tiny/checkpoint"),
                                          "sft.steps=0", "grpo.steps=0", "mesh.dp=1", "mesh.cp=1"}));
    ASSERT_EQ(next.wait(), 0) << next.err();
    const json a = json::parse(read_file(folder / "tiny/summary.json"));
    const json b = json::parse(read_file(folder / "next/summary.json"));
    EXPECT_EQ(a["reward_last"], b["reward_first"]);
    EXPECT_EQ(a["greedy_last"], b["greedy_first"]);
    EXPECT_TRUE(read_file(folder / "tiny/checkpoint/model.safetensors") ==
                read_file(folder / "next/checkpoint/model.safetensors"));

    Program engine({"tandem-engine", "serve", "--model", folder / "next/checkpoint", "--listen",
                    "127.0.0.1:0", "--ready-file", folder / "url"});
    EXPECT_TRUE(eventually([&] { return fs::exists(folder / "url"); })) << engine.err();
}

TEST(Run, AsRanksThatALauncherStarted) {
    Folder folder;
    const int port = free_port();
    const auto environment = [&](int rank) {
        return std::vector<std::string>{"RANK=" + std::to_string(rank), "WORLD_SIZE=2",
                                        "LOCAL_RANK=" + std::to_string(rank), "MASTER_ADDR=127.0.0.1",
                                        "MASTER_PORT=" + std::to_string(port)};
    };
    const auto command = tiny_run(folder.path(), {"mesh.dp=1", "grpo.steps=2"});
    Program zero(command, environment(0)), one(command, environment(1));
    EXPECT_EQ(zero.wait(), 0) << zero.err();
    EXPECT_EQ(one.wait(), 0) << one.err();
    EXPECT_EQ(json::parse(read_file(folder / "tiny/summary.json"))["world_size"], 2);
    EXPECT_EQ(files_in(folder.path()), std::set<std::string>{"tiny"});

    Program wrong(tiny_run(folder.path()), environment(0));
    EXPECT_EQ(wrong.wait(), 2);
    EXPECT_THAT(wrong.err(), HasSubstr("dp 2 x cp 2 = 4 ranks, but WORLD_SIZE is 2"));
}

}  // namespace
}  // namespace tandem::test
