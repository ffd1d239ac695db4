// Whole runs of tandem-train with other losses than the default: every algorithm on four ranks, and the same
// figures on every mesh.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "tests/multiproc/app/program.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using Options = std::vector<std::string>;

// Lines of the phase "grpo".
std::vector<json> steps_of(const std::string& run) {
    std::vector<json> lines;
    std::istringstream in(read_file(run + "/metrics.jsonl"));
    for (std::string text; std::getline(in, text);) {
        json line = json::parse(text);
        if (line["phase"] == "grpo") lines.push_back(std::move(line));
    }
    return lines;
}

// A model that answers every third prompt rightly: made once, for all of these runs to start from.
const std::string& started_model() {
    static const Folder folder;
    static const std::string model = [] {
        Program program(tiny_run(folder.path(), {"run.name=start", "sft.steps=250", "grpo.steps=0"}));
        EXPECT_EQ(program.wait(), 0) << program.err();
        return folder / "start/checkpoint";
    }();
    return model;
}

Options joined(Options a, const Options& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

const Options kEverything{"loss.algorithm=ppo", "loss.kl_coef=0.1",       "loss.kl_in=reward",
                          "loss.kl=k1",         "loss.entropy_coef=0.01", "loss.tis=clamp",
                          "loss.dual_clip=3",   "loss.opsm_delta=0.01",   "loss.gamma=0.99",
                          "loss.lambda=0.95",   "loss.reference_every=2", "loss.clip_high=0.28",
                          "grpo.epochs=2",      "grpo.temperature=0.7"};

TEST(LossRun, EveryAlgorithmTrains) {
    Folder folder;
    std::map<std::string, std::string> weights;
    for (const std::string name :
         {"grpo", "dr_grpo", "gspo", "rloo", "ppo", "reinforce++", "reinforce++_baseline"}) {
        SCOPED_TRACE(name);
        const std::string run = "r" + std::to_string(weights.size());
        Program program(tiny_run(
            folder.path(), {"run.name=" + run, "loss.algorithm=" + name, "model.path=" + started_model(),
                            "sft.steps=0", "grpo.steps=2", "loss.kl_coef=0.01"}));
        ASSERT_EQ(program.wait(), 0) << program.err();
        const json summary = json::parse(read_file(folder / (run + "/summary.json")));
        EXPECT_EQ(summary["weights_match"], true);
        EXPECT_LE(summary["logprob_max_abs_diff"], 1e-4);
        for (const json& step : steps_of(folder / run)) {
            EXPECT_GT(step["grad_norm"], 0);
            EXPECT_GT(step["entropy"], 0);
            EXPECT_GE(step["reference_kl"], 0);
            EXPECT_EQ(step.contains("value_loss"), name == "ppo");
        }
        weights[name] = read_file(folder / (run + "/checkpoint/model.safetensors"));
        for (const auto& [other, bytes] : weights) EXPECT_EQ(bytes == weights[name], other == name) << other;
    }
}

// At another temperature than 1 the engine's log-probs are still the trainer's.
TEST(LossRun, EverythingAtOnceIsTheSameOnEveryMesh) {
    Folder folder;
    const Options small = joined(kEverything, {"model.path=" + started_model(), "sft.steps=0", "grpo.steps=1",
                                               "grpo.prompts=8", "grpo.samples=4", "loss.reference_every=0"});
    std::vector<json> first;
    for (const auto& [dp, cp] : std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
        const std::string run = "dp" + std::to_string(dp) + "cp" + std::to_string(cp);
        SCOPED_TRACE(run);
        Program program(
            tiny_run(folder.path(), joined(small, {"run.name=" + run, "mesh.dp=" + std::to_string(dp),
                                                   "mesh.cp=" + std::to_string(cp)})));
        ASSERT_EQ(program.wait(), 0) << program.err();
        const std::vector<json> steps = steps_of(folder / run);
        ASSERT_EQ(steps.size(), 1u);
        EXPECT_LE(steps[0]["logprob_max_abs_diff"], 1e-5);
        if (first.empty()) first = steps;
        for (const char* key : {"loss", "grad_norm", "entropy", "kl", "reference_kl", "value_loss",
                                "importance_mean", "ratio_max"}) {
            const double wanted = first[0][key];
            EXPECT_NEAR(steps[0][key].get<double>(), wanted, 1e-4 * (1 + std::abs(wanted))) << key;
        }
    }
}

TEST(LossRun, EverythingAtOnceRepeatsBitForBit) {
    Folder folder;
    const Options some =
        joined(kEverything, {"model.path=" + started_model(), "sft.steps=0", "grpo.steps=3"});
    for (const std::string name : {"a", "b"}) {
        Program program(tiny_run(folder.path(), joined(some, {"run.name=" + name})));
        ASSERT_EQ(program.wait(), 0) << program.err();
    }
    EXPECT_TRUE(read_file(folder / "a/checkpoint/model.safetensors") ==
                read_file(folder / "b/checkpoint/model.safetensors"));
}

// The reference from a directory: the same weights as the policy starts with give the same run.
TEST(LossRun, TheReferenceCanComeFromADirectory) {
    Folder folder;
    const std::string& model = started_model();
    const Options some{"sft.steps=0", "grpo.steps=2", "loss.kl_coef=0.5", "model.path=" + model};
    for (const Options& more :
         {Options{"run.name=own"}, Options{"run.name=loaded", "loss.reference=" + model}}) {
        Program program(tiny_run(folder.path(), joined(some, more)));
        ASSERT_EQ(program.wait(), 0) << program.err();
    }
    EXPECT_TRUE(read_file(folder / "own/checkpoint/model.safetensors") ==
                read_file(folder / "loaded/checkpoint/model.safetensors"));

    Program bad(tiny_run(folder.path(), joined(some, {"run.name=bad", "loss.reference=/tmp"})));
    EXPECT_EQ(bad.wait(), 2);
    EXPECT_THAT(bad.err(), testing::HasSubstr("/tmp"));
}

}  // namespace
}  // namespace tandem::test
