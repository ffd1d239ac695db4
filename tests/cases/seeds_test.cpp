// GRPO behind a router of two engines: each unseeded sample came twice, silently half the group (miles#2002, verl#6857).
#include <cstdint>
#include <set>

#include "tests/cases/run.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kUnseeded =
    R"({"input_ids": [72, 105], "sampling_params": {"max_new_tokens": 10, "temperature": 1.0}})";

class Seeds : public Case {
  protected:
    Seeds() { write_qwen2(path("model")); }
    struct Served {
        std::vector<json> samples;  // of four unseeded requests
        json seed;                  // of /server_info
        std::string output;
    };
    Served served(const std::vector<std::string>& options = {}) const {
        std::vector<std::string> all = {"--threads", "1", "--kv-tokens", "1024"};
        all.insert(all.end(), options.begin(), options.end());
        engine::Program engine(serve("model", all));
        const std::string url = engine.url();
        Served result;
        for (int i = 0; i < 4; ++i)
            result.samples.push_back(ask(url, "POST", "/generate", kUnseeded).json().at("output_ids"));
        result.seed = ask(url, "GET", "/server_info").json().at("random_seed");
        result.output = engine.output();
        return result;
    }
};

TEST_F(Seeds, UnseededEnginesDrawTheirOwnSamplesAlsoAfterARestart) {
    const Served first = served(), second = served();  // a second engine, or the first one started again
    std::set<json> distinct(first.samples.begin(), first.samples.end());
    distinct.insert(second.samples.begin(), second.samples.end());
    EXPECT_EQ(distinct.size(), 8u);
    for (const Served& one : {first, second}) {
        ASSERT_TRUE(one.seed.is_number_unsigned());
        EXPECT_LT(one.seed.get<std::uint64_t>(), std::uint64_t{1} << 32);
        EXPECT_THAT(one.output, HasSubstr("random seed " + one.seed.dump()));
    }
    EXPECT_NE(first.seed, second.seed);
    EXPECT_EQ(served({"--random-seed", first.seed.dump()}).samples, first.samples)
        << "what was logged gives it again";
}

TEST_F(Seeds, WhatIsNoSeedIsRefused) {
    for (const char* seed : {"-1", "x", "1.5", "18446744073709551616"}) {
        engine::Program engine(serve("model", {"--random-seed", seed}));
        EXPECT_EQ(engine.wait(), 2) << seed;
        EXPECT_THAT(engine.output(), HasSubstr("--random-seed"));
    }
}

// What engines gave before they drew seeds: (seed 0, how many requests came before).
TEST_F(Seeds, SeedZeroGivesTheSamplesOfOld) {
    const Served zero = served({"--random-seed", "0"});
    EXPECT_EQ(zero.seed, 0);
    EXPECT_EQ(json(zero.samples), json::parse(R"([[235,228,101,214,30,254,174,77,67,100],
[228,240,118,77,217,191,253,174,87,175],
[33,184,200,10,177,184,34,234,11,5],
[136,220,240,168,61,111,256,11,140,192]])"));
}

// tandem-train seeds every prompt: two runs are the same, whatever their engines drew.
TEST_F(Seeds, RunsOfOneSeedAreTheSameToTheBit) {
    write_tiny(path("model"));
    std::vector<std::vector<json>> metrics;
    std::vector<std::string> samples;
    for (const char* name : {"one", "two"}) {
        const Ended run = ended(train({std::string("run.name=") + name, "run.seed=7", "grpo.steps=2"}));
        ASSERT_EQ(run.code, 0) << run.text();
        metrics.push_back(timeless_metrics(path("runs") + "/" + name));
        samples.push_back(read_file(path("runs") + "/" + name + "/samples.jsonl"));
    }
    EXPECT_EQ(metrics[0], metrics[1]);
    EXPECT_EQ(samples[0], samples[1]);
}

// The same with an engine of the user's that has drawn its seed.
TEST_F(Seeds, RunsOnAnUnseededEngineOfTheUsersAreTheSame) {
    write_tiny(path("model"));
    std::vector<std::string> samples;
    for (const char* name : {"one", "two"}) {
        engine::Program engine(
            serve("model", {"--threads", "1", "--kv-tokens", "4096", "--skip-tokenizer-init"}));
        const Ended run =
            ended(train({std::string("run.name=") + name, "grpo.steps=1", "engine.url=" + engine.url()}));
        ASSERT_EQ(run.code, 0) << run.text();
        samples.push_back(read_file(path("runs") + "/" + name + "/samples.jsonl"));
    }
    EXPECT_FALSE(samples[0].empty());
    EXPECT_EQ(samples[0], samples[1]);
}

}  // namespace
}  // namespace tandem::test
