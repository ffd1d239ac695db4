// Runs of tandem-train that are killed and go on: to the same bits as a run that was never interrupted; and
// what --resume refuses.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/multiproc/app/program.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// Ten steps of warm start and ten of reinforcement, a checkpoint each third.
class Resume : public testing::Test {
  protected:
    std::vector<std::string> run(const std::string& name, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> values = {"name=" + name,     "mesh.dp=2",          "mesh.cp=1",
                                           "held_out=16",      "checkpoint.every=3", "evaluate_every=4",
                                           "loss.kl_coef=0.01"};
        values.insert(values.end(), more.begin(), more.end());
        return tiny_run(folder.path(), values);
    }
    std::vector<std::string> resumed(const std::string& name,
                                     const std::vector<std::string>& more = {}) const {
        auto command = run(name, more);
        command.push_back("--resume");
        return command;
    }
    void finish(const std::vector<std::string>& command) const {
        Program program(command);
        ASSERT_EQ(program.wait(), 0) << program.err();
    }
    // Killed with signal 9 as soon as it has a checkpoint of this step.
    void kill_at(const std::vector<std::string>& command, const std::string& name, int step) const {
        Program program(command);
        const std::string there = folder / (name + ".partial/checkpoints/step-" + std::to_string(step));
        ASSERT_TRUE(eventually([&] { return fs::exists(there) || !program.running(); })) << program.err();
        program.kill(SIGKILL);
        const int code = program.wait();
        ASSERT_EQ(code, -SIGKILL) << program.err();
    }
    std::string refusal(const std::vector<std::string>& command) const {
        Program program(command);
        EXPECT_EQ(program.wait(), 2);
        return program.err();
    }
    void expect_equal_runs(const std::string& a, const std::string& b) const {
        EXPECT_EQ(timeless_metrics(folder / a), timeless_metrics(folder / b));
        const std::string weights = read_file(folder / (a + "/checkpoint/model.safetensors"));
        EXPECT_FALSE(weights.empty());
        EXPECT_TRUE(weights == read_file(folder / (b + "/checkpoint/model.safetensors")));
        const json one = json::parse(read_file(folder / (a + "/summary.json")));
        const json two = json::parse(read_file(folder / (b + "/summary.json")));
        for (const char* key : {"steps", "sft_steps", "reward_first", "reward_last", "greedy_first",
                                "greedy_last", "weight_version", "weights_match", "logprob_max_abs_diff"}) {
            ASSERT_TRUE(one.contains(key)) << key;
            EXPECT_EQ(one[key], two[key]) << key;
        }
    }

    Folder folder;
};

TEST_F(Resume, AKilledRunEndsAsIfItHadNotBeen) {
    finish(run("whole"));
    kill_at(run("killed"), "killed", 6);       // in the warm start
    kill_at(resumed("killed"), "killed", 12);  // in the reinforcement
    finish(resumed("killed"));
    expect_equal_runs("whole", "killed");
    EXPECT_FALSE(fs::exists(folder / "killed.partial"));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder / "killed/checkpoints"), {}), 2);
    EXPECT_TRUE(fs::exists(folder / "killed/checkpoints/step-20"));  // the end, whatever checkpoint.every

    // A finished run may be given more steps, under its own name or another.
    finish(resumed("killed", {"grpo.steps=11"}));
    EXPECT_EQ(json::parse(read_file(folder / "killed/summary.json"))["steps"], 11);
    finish(run("other", {"run.resume=" + (folder / "whole"), "grpo.steps=11"}));
    expect_equal_runs("killed", "other");
}

// Most of such a run is the writing of checkpoints.
TEST_F(Resume, TwentyKillsAtRandomPointsCostNothing) {
    const std::vector<std::string> steps = {"sft.steps=60", "grpo.steps=2", "checkpoint.every=1"};
    std::mt19937 random(static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed()) + 3);
    const std::string checkpoints = folder / "killed.partial/checkpoints";
    const auto newest = [&] {
        int step = 0;
        std::error_code none;
        for (const auto& entry : fs::directory_iterator(checkpoints, none)) {
            const std::string name = entry.path().filename();
            if (name.starts_with("step-")) step = std::max(step, std::stoi(name.substr(5)));
        }
        return step;
    };
    int left_behind = 0;
    for (int kill = 0; kill < 20; ++kill) {
        const int before = newest();
        Program program(kill == 0 ? run("killed", steps) : resumed("killed", steps));
        ASSERT_TRUE(eventually([&] { return newest() > before || !program.running(); })) << program.err();
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
        const auto children = program.children();
        program.kill(SIGKILL);
        ASSERT_EQ(program.wait(), -SIGKILL) << program.err();
        for (const auto& [name, pid] : children) {  // they end with their parent
            ASSERT_TRUE(eventually([pid = pid] { return !alive(pid); })) << name;
        }
        for (const auto& entry : fs::directory_iterator(checkpoints)) {
            left_behind += entry.path().filename().string().starts_with(".") ? 1 : 0;
        }
    }
    std::printf("%d of 20 kills left an unfinished write behind, at steps up to %d\n", left_behind, newest());
    Program last(resumed("killed", steps));
    ASSERT_EQ(last.wait(), 0) << last.err();
    EXPECT_THAT(last.err(), testing::Not(HasSubstr("not whole")));
    for (const auto& entry : fs::directory_iterator(folder / "killed/checkpoints")) {
        EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
    }
    finish(run("whole", {"sft.steps=60", "grpo.steps=2", "checkpoint.every=0"}));
    expect_equal_runs("whole", "killed");
}

TEST_F(Resume, AnotherMeshGoesOn) {
    finish(run("whole"));
    kill_at(run("killed"), "killed", 12);
    finish(resumed("killed", {"mesh.dp=1"}));
    const auto one = timeless_metrics(folder / "whole"), two = timeless_metrics(folder / "killed");
    ASSERT_EQ(one.size(), two.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
        if (!one[i].contains("loss")) continue;
        EXPECT_EQ(one[i]["step"], two[i]["step"]);
        EXPECT_NEAR(one[i]["grad_norm"].get<double>(), two[i]["grad_norm"].get<double>(), 0.05) << i;
    }
}

TEST_F(Resume, DamageIsPassedOverOrNamed) {
    kill_at(run("killed"), "killed", 9);
    const std::string newest = folder / "killed.partial/checkpoints/step-9";
    fs::resize_file(newest + "/rank-00001.safetensors", 1000);
    const std::string named = "run.resume=" + newest;
    EXPECT_THAT(refusal(run("killed", {named})),
                AllOf(HasSubstr("step-9/rank-00001.safetensors: is 1000 bytes long, its manifest says "),
                      HasSubstr("tandem-train: ")));
    EXPECT_TRUE(fs::exists(newest));
    Program program(resumed("killed"));
    ASSERT_EQ(program.wait(), 0) << program.err();
    EXPECT_THAT(program.err(), HasSubstr("step-9 is not whole and is passed over"));
    finish(run("whole"));
    expect_equal_runs("whole", "killed");
}

TEST_F(Resume, WhatCannotBeContinuedIsRefused) {
    EXPECT_THAT(refusal(resumed("none")), HasSubstr("run.resume: no whole checkpoint in "));
    EXPECT_TRUE(folder.empty());
    kill_at(run("killed"), "killed", 12);
    const auto before = fs::last_write_time(folder / "killed.partial/config.toml");
    EXPECT_THAT(refusal(run("killed")), AllOf(HasSubstr("holds step-"), HasSubstr("--resume continues it")));
    EXPECT_THAT(refusal(resumed("killed", {"model.layers=1"})),
                HasSubstr("of another model: num_hidden_layers: it was 2, it is 1"));
    EXPECT_THAT(refusal(resumed("killed", {"run.seed=5"})),
                HasSubstr("of another algorithm: run.seed: it was 0, it is 5"));
    EXPECT_THAT(refusal(resumed("killed", {"loss.kl_coef=0.5"})),
                HasSubstr("of another algorithm: loss.kl_coef: it was 0.01, it is 0.5"));
    EXPECT_THAT(refusal(resumed("killed", {"grpo.steps=1"})),
                HasSubstr("reinforcement already; grpo.steps is 1"));
    EXPECT_THAT(refusal(run("killed", {"run.resume=/nowhere"})),
                HasSubstr("'/nowhere' is neither a checkpoint nor a run"));
    EXPECT_EQ(fs::last_write_time(folder / "killed.partial/config.toml"), before);
    finish(resumed("killed"));
}

}  // namespace
}  // namespace tandem::test
