// A run that goes on with something else than it began with: more steps, other data.
#include <filesystem>
#include <fstream>

#include "tests/cases/run.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Resumed : public Case {
  protected:
    Resumed() { write_tiny(path("model")); }
    Ended run(std::vector<std::string> more, const std::vector<std::string>& flags = {}) const {
        more.emplace_back("checkpoint.every=2");
        return ended(train(more, flags));
    }
    std::string finish(const std::vector<std::string>& more,
                       const std::vector<std::string>& flags = {}) const {
        const Ended result = run(more, flags);
        EXPECT_EQ(result.code, 0) << result.text();
        return result.text();
    }
    std::string refusal(const std::vector<std::string>& more) const {
        const Ended result = run(more, {"--resume"});
        EXPECT_EQ(result.code, 2) << result.text();
        return result.text();
    }
    double rate(int step) const {
        for (const json& line : timeless_metrics(path("runs/run"))) {
            if (line["phase"] == "grpo" && line["step"] == step) return line["lr"];
        }
        ADD_FAILURE() << "no step " << step;
        return -1;
    }
    std::string lines(int first, int count) const {
        std::string text;
        for (int i = first; i < first + count; ++i)
            text += json{{"prompt", std::to_string(i) + "+1="}, {"answer", i + 1}}.dump() + "\n";
        return text;
    }
};

// Its learning rate jumped from 1.45e-4 to 4e-4 without a word.
TEST_F(Resumed, WithMoreStepsSaysItsSchedule) {
    finish({"grpo.steps=4"});
    EXPECT_NEAR(rate(4), 2.6e-4, 1e-9);
    const std::vector<std::string> six = {"grpo.steps=6", "run.if_exists=keep"};
    EXPECT_THAT(finish(six, {"--resume"}),
                AllOf(HasSubstr("falls over 6 steps now, not over 4"), HasSubstr("step 5 has 0.0004, "),
                      HasSubstr("of 4 steps it would have 0.0001, and step 4 had 0.00026")));
    EXPECT_NEAR(rate(5), 4e-4, 1e-9);

    fs::remove_all(path("runs/run"));
    fs::rename(path("runs/run.1"), path("runs/run"));
    EXPECT_THAT(finish({"grpo.steps=6", "grpo.schedule_steps=4"}, {"--resume"}),
                Not(HasSubstr("learning rate")));
    EXPECT_NEAR(rate(4), 2.6e-4, 1e-9);
    EXPECT_NEAR(rate(5), 1e-4, 1e-9);
    EXPECT_NEAR(rate(6), 1e-4, 1e-9);
}

// The prompts had grown meanwhile, and what was held out was trained on.
TEST_F(Resumed, WithOtherDataIsRefused) {
    write_text(path("grow.jsonl"), lines(0, 30));
    const std::string prompts = "data.prompts=" + path("grow.jsonl");
    finish({prompts, "grpo.steps=2"});
    const json digests = json::parse(read_file(path("runs/run/data.json")));
    EXPECT_EQ(digests["data.prompts"]["lines"], 30);
    const json manifest = json::parse(read_file(path("runs/run/checkpoints/step-2/manifest.json")));
    EXPECT_EQ(manifest["data"]["data.prompts"]["xxh3_128"], digests["data.prompts"]["xxh3_128"]);

    write_text(path("grow.jsonl"), lines(0, 50));
    EXPECT_THAT(
        refusal({prompts, "grpo.steps=4"}),
        AllOf(HasSubstr("run.resume: "), HasSubstr("data.prompts: "), HasSubstr("in 30 lines (XXH3-128 "),
              HasSubstr("its first 30 lines are the same, and more follow"),
              HasSubstr("data.changed=accept")));
    write_text(path("grow.jsonl"), lines(0, 17) + lines(90, 1) + lines(18, 12));
    EXPECT_THAT(refusal({prompts, "grpo.steps=4"}), HasSubstr("the first difference is in line 18"));
    write_text(path("grow.jsonl"), lines(0, 29));
    EXPECT_THAT(refusal({prompts, "grpo.steps=4"}), HasSubstr("it ends, or differs first, in line 30"));
    EXPECT_THAT(refusal({prompts, "grpo.steps=4", "data.held_out_file=" + path("prompts.jsonl")}),
                HasSubstr("data.held_out_file: there was none"));
    EXPECT_EQ(json::parse(read_file(path("runs/run/summary.json")))["steps"], 2);

    // The same content elsewhere; then whatever is there now.
    write_text(path("same.jsonl"), lines(0, 30));
    EXPECT_THAT(finish({"data.prompts=" + path("same.jsonl"), "grpo.steps=4"}, {"--resume"}),
                Not(HasSubstr("other data")));
    EXPECT_THAT(finish({prompts, "grpo.steps=6", "data.changed=accept"}, {"--resume"}),
                HasSubstr("goes on with other data than "));
    EXPECT_THAT(finish({prompts, "grpo.steps=8"}, {"--resume"}), Not(HasSubstr("other data")));
}

TEST_F(Resumed, FromACheckpointWithoutDigestsWarns) {
    finish({"grpo.steps=2"});
    const std::string file = path("runs/run/checkpoints/step-2/manifest.json");
    json manifest = json::parse(read_file(file));
    manifest.erase("data");
    write_text(file, manifest.dump());
    EXPECT_THAT(finish({"grpo.steps=4"}, {"--resume"}), HasSubstr("has no digest of its data"));
}

}  // namespace
}  // namespace tandem::test
