// The same command typed again, and names that meet: what a finished run left is there afterwards.
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "tests/cases/run.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class EarlierRun : public Case {
  protected:
    EarlierRun() { write_tiny(path("model")); }
    void finish(const std::vector<std::string>& more = {}, const std::vector<std::string>& flags = {}) const {
        std::vector<std::string> values = {"grpo.steps=1"};
        values.insert(values.end(), more.begin(), more.end());
        const Ended run = ended(train(values, flags));
        ASSERT_EQ(run.code, 0) << run.text();
    }
    std::string refusal(const std::vector<std::string>& more,
                        const std::vector<std::string>& flags = {}) const {
        const Ended run = ended(train(more, flags));
        EXPECT_EQ(run.code, 2) << run.text();
        return run.text();
    }
    std::int64_t steps(const std::string& name) const {
        return json::parse(read_file(path("runs/" + name + "/summary.json")))
            .value("steps", std::int64_t{-1});
    }
};

// A user typed the command of a run of a night once more, with one step.
TEST_F(EarlierRun, IsRefusedKeptOrOverwritten) {
    finish({"grpo.steps=2"});
    EXPECT_THAT(refusal({"grpo.steps=1"}),
                AllOf(HasSubstr("run.if_exists: refuse: "), HasSubstr("runs/run is a finished run"),
                      HasSubstr("--resume"), HasSubstr("overwrite")));
    EXPECT_EQ(steps("run"), 2);

    finish({"run.if_exists=keep"});
    finish({"run.if_exists=keep", "grpo.steps=3"});
    EXPECT_EQ(steps("run.1"), 2);
    EXPECT_EQ(steps("run.2"), 1);
    EXPECT_EQ(steps("run"), 3);
    for (const char* kept : {"run", "run.1", "run.2"})
        EXPECT_TRUE(fs::exists(path(std::string("runs/") + kept + "/report.html"))) << kept;

    fs::rename(path("runs/run.1"), path("runs/run.old"));  // a name that somebody chose
    finish({"run.if_exists=overwrite"});
    EXPECT_EQ(steps("run"), 1);
    EXPECT_EQ(steps("run.old"), 2);
    EXPECT_EQ(std::distance(fs::directory_iterator(path("runs")), {}), 3);

    // Killed while it removed or replaced: neither half comes back, and a whole one does.
    for (const char* left : {"runs/.run.removed", "runs/.other.replaced"})
        fs::copy(path("runs/run"), path(left), fs::copy_options::recursive);
    finish({"run.if_exists=overwrite", "grpo.steps=2"});
    finish({"run.name=other"});
    EXPECT_EQ(steps("other"), 1);
    EXPECT_EQ(steps("other.1"), 1);
    EXPECT_EQ(std::distance(fs::directory_iterator(path("runs")), {}), 5);
    EXPECT_THAT(refusal({"run.name=other.partial"}),
                HasSubstr("NAME.partial is the folder of a run that has not"));
}

// What a run reads from is what its own end would remove.
TEST_F(EarlierRun, WhatIsReadIsNotRemoved) {
    finish();
    const std::string model = path("runs/run/checkpoint"), overwrite = "run.if_exists=overwrite";
    const auto files = [&] { return std::distance(fs::recursive_directory_iterator(path("runs")), {}); };
    const auto before = files();
    EXPECT_THAT(
        refusal({overwrite, "model.path=" + model}),
        AllOf(HasSubstr("model.path: '"), HasSubstr("runs/run, which goes when the run has finished")));
    fs::create_directory_symlink(path("runs"), path("linked_runs"));
    fs::create_directory_symlink(path("linked_runs/run/checkpoint"), path("linked"));
    EXPECT_THAT(refusal({overwrite, "model.path=" + path("linked")}), HasSubstr("model.path: '"));
    fs::create_directory(path("of_links"));
    for (const auto& entry : fs::directory_iterator(model))
        fs::create_symlink(entry.path(), path("of_links") / entry.path().filename());
    EXPECT_THAT(refusal({overwrite, "loss.reference=" + path("of_links"), "loss.kl_coef=0.1"}),
                HasSubstr("loss.reference: '"));
    fs::copy_file(path("prompts.jsonl"), path("runs/run/prompts.jsonl"));
    EXPECT_THAT(refusal({overwrite, "data.prompts=" + path("runs/run/prompts.jsonl")}),
                HasSubstr("data.prompts: '"));
    EXPECT_EQ(files(), before + 1);

    // The working folder of a run that failed at its end.
    fs::copy(path("runs/run"), path("runs/next.partial"), fs::copy_options::recursive);
    EXPECT_THAT(refusal({"run.name=next", overwrite, "model.path=" + path("runs/next.partial/checkpoint")}),
                AllOf(HasSubstr("model.path: '"), HasSubstr("next.partial, which is emptied")));
    EXPECT_THAT(refusal({"run.name=next"}),
                HasSubstr("next.partial/checkpoint is the whole model of a run that failed"));
    finish({"run.name=next", "run.if_exists=keep"});
    EXPECT_TRUE(fs::exists(path("runs/next.partial.1/checkpoint/config.json")));
    fs::create_directory(path("runs/mine.partial"));
    write_text(path("runs/mine.partial/notes"), "of a person\n");
    EXPECT_THAT(refusal({"run.name=mine"}), HasSubstr("exists and is not a run's"));
}

// What a run of days has come to, before it ends.
TEST_F(EarlierRun, AnUnfinishedOneHasAReport) {
    Program program(train({"grpo.steps=100000"}));
    ASSERT_TRUE(eventually([&] {
        return read_file(path("runs/run.partial/metrics.jsonl")).find("\"grpo\",\"step\":3") !=
                   std::string::npos ||
               !program.running();
    })) << program.err();
    for (const char* folder : {"runs/run", "runs/run.partial/"}) {
        const Ended report = ended({"tandem-train", "report", path(folder)});
        EXPECT_EQ(report.code, 0) << report.text();
        EXPECT_THAT(report.text(),
                    testing::ContainsRegex("run.partial has not ended: it has done [0-9]+ of 100000 steps"));
    }
    EXPECT_THAT(read_file(path("runs/run.partial/report.html")), HasSubstr("This run has not ended"));
    program.kill(SIGTERM);
    EXPECT_EQ(program.wait(), 1);
}

// One command for a job that a scheduler starts again until it ends with 0.
TEST_F(EarlierRun, ResumeOrStart) {
    const std::vector<std::string> values = {"checkpoint.every=1", "grpo.steps=3"},
                                   flag = {"--resume-or-start"};
    std::vector<std::string> endless = values;
    endless.emplace_back("grpo.steps=100000");
    {
        Program first(train(endless, flag));
        ASSERT_TRUE(eventually([&] {
            return fs::exists(path("runs/run.partial/checkpoints/step-1")) || !first.running();
        })) << first.err();
        first.kill(SIGKILL);
        first.wait();
    }
    endless.back() = "grpo.steps=100000";
    std::int64_t reached = 0;
    for (const auto& entry : fs::directory_iterator(path("runs/run.partial/checkpoints"))) {
        const std::string name = entry.path().filename();
        if (name.starts_with("step-"))
            reached = std::max(reached, static_cast<std::int64_t>(std::stoll(name.substr(5))));
    }
    const std::string last = "grpo.steps=" + std::to_string(reached + 2);
    finish({"checkpoint.every=1", last}, flag);
    EXPECT_EQ(steps("run"), reached + 2);

    const auto written = fs::last_write_time(path("runs/run/summary.json"));
    const Ended again = ended(train({"checkpoint.every=1", last}, flag));
    EXPECT_EQ(again.code, 0) << again.text();
    EXPECT_THAT(again.text(), AllOf(HasSubstr("runs/run is finished"), HasSubstr("runs/run/report.html")));
    const Ended resumed = ended(train({"checkpoint.every=1", last}, {"--resume"}));
    EXPECT_EQ(resumed.code, 0) << resumed.text();
    EXPECT_THAT(resumed.text(), HasSubstr("runs/run is finished"));
    EXPECT_EQ(fs::last_write_time(path("runs/run/summary.json")), written);
    EXPECT_TRUE(fs::exists(path("runs/run/checkpoints")));
    EXPECT_THAT(refusal({"checkpoint.every=1", last, "train.lr=0.5"}, flag), HasSubstr("train.lr was "));

    finish({"checkpoint.every=1", "grpo.steps=" + std::to_string(reached + 3)}, flag);
    EXPECT_EQ(steps("run"), reached + 3);
    EXPECT_FALSE(fs::exists(path("runs/run.1")));  // it went on in its own place
}

}  // namespace
}  // namespace tandem::test
