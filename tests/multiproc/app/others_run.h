// Runs of tandem-train with a third-party server as the engine: the model that both begin with, and what every such run
// must have come to.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/multiproc/app/program.h"

namespace tandem::test {

class OthersRun : public testing::Test {
  protected:
    // Made once; a head of its own.
    static void SetUpTestSuite() {
        made_ = std::make_unique<Folder>();
        Program program(tiny_run(made_->path(), {"mesh.dp=1", "mesh.cp=1", "model.tie_embeddings=false",
                                                 "sft.steps=20", "grpo.steps=0"}));
        ASSERT_EQ(program.wait(), 0) << program.err();
    }
    static void TearDownTestSuite() { made_.reset(); }

    std::string model() const { return *made_ / "tiny/checkpoint"; }
    std::string scratch() const { return folder_ / "scratch"; }
    std::string runs() const { return folder_ / "runs"; }
    std::vector<std::string> run(const std::string& url, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> values{"mesh.dp=2",
                                        "mesh.cp=1",
                                        "model.path=" + model(),
                                        "sft.steps=0",
                                        "grpo.steps=3",
                                        "held_out=16",
                                        "updates=2",
                                        "engine.url=" + url,
                                        "grpo.temperature=0.8",
                                        "run.if_exists=overwrite"};
        values.insert(values.end(), more.begin(), more.end());
        return tiny_run(runs(), values);
    }

    // The three steps of run(): the server sampled with what was pushed, whatever step that is of.
    void expect_sampled_by_what_was_pushed() const {
        const auto s = nlohmann::json::parse(read_file(runs() + "/tiny/summary.json"));
        EXPECT_EQ(s["weight_version"], 4);          // the start, and three steps
        EXPECT_TRUE(s["weights_match"].is_null());  // it cannot say
        EXPECT_LE(s["logprob_max_abs_diff"], 1e-4);
        int steps = 0;
        for (const nlohmann::json& line : timeless_metrics(runs() + "/tiny")) {
            if (line["phase"] != "grpo") continue;
            ++steps;
            EXPECT_LE(line["logprob_mean_abs_diff"], line["logprob_max_abs_diff"]);
            EXPECT_NEAR(line["importance_mean"], 1.0, 1e-4);
            EXPECT_EQ(line["importance_fraction"], 0);
            EXPECT_EQ(line["staleness"], 0);
        }
        EXPECT_EQ(steps, 3);
    }

    static inline std::unique_ptr<Folder> made_;
    Folder folder_;
};

}  // namespace tandem::test
