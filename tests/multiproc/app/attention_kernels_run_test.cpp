// The quickstart on an emulated GPU whose attention is the CUDA kernels (TANDEM_EMULATED_ATTENTION), in bfloat16: the log-probs
// of what the engine sampled, by its prefill and its decode, are those of the trainer's own forward, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/multiproc/app/program.h"

namespace tandem::test {
namespace {

using nlohmann::json;

struct Compared {
    double values = 0;   // log-probs
    double longest = 0;  // tokens of an answer
    double largest = 0;  // difference
};

// Two steps of eight samples, or as `more` says.
Compared run(const char* attention, const std::vector<std::string>& more = {}) {
    std::vector<std::string> values = {"seed=4",
                                       "run.device=cuda",
                                       "mesh.dp=1",
                                       "mesh.cp=1",
                                       "train.compute_dtype=bf16",
                                       "engine.dtype=bf16",
                                       "model.context=128",
                                       "sft.steps=1",
                                       "sft.batch=4",
                                       "grpo.steps=2",
                                       "grpo.prompts=1",
                                       "grpo.samples=8",
                                       "grpo.updates=1",
                                       "grpo.max_new_tokens=80",
                                       "held_out=1"};
    values.insert(values.end(), more.begin(), more.end());
    const Folder folder;
    Program program(tiny_run(folder.path(), values),
                    {"TANDEM_EMULATED_GPUS=1", std::string("TANDEM_EMULATED_ATTENTION=") + attention});
    EXPECT_EQ(program.wait(), 0) << program.err();
    Compared result;
    for (const json& line : timeless_metrics(folder / "tiny")) {
        if (!line.contains("logprob_max_abs_diff")) continue;
        EXPECT_TRUE(line["logprob_mean_abs_diff"].is_number());  // not NaN
        result.values += 8 * line["response_length_mean"].get<double>();
        result.longest = std::max(result.longest, line["response_length_max"].get<double>());
        result.largest = std::max(result.largest, line["logprob_max_abs_diff"].get<double>());
    }
    return result;
}

// Answers that go on beyond a cadence of 64 keys.
TEST(AttentionKernelsRun, TrainerAndEngineAgreeInEveryBit) {
    const Compared compared = run("kernels");
    EXPECT_EQ(compared.largest, 0);
    EXPECT_GT(compared.values, 300);
    EXPECT_GT(compared.longest, 64);
}

TEST(AttentionKernelsRun, OnAHopperToo) {
    const Compared compared = run("hopper", {"grpo.steps=1", "grpo.max_new_tokens=16"});
    EXPECT_EQ(compared.largest, 0);
    EXPECT_GT(compared.values, 64);
}

TEST(AttentionKernelsRun, OtherPartsInDecodeShow) {
    const Compared compared = run("other_parts");
    EXPECT_GT(compared.largest, 0);
    EXPECT_LT(compared.largest, 0.1);
}

}  // namespace
}  // namespace tandem::test
