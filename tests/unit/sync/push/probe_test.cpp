// What --verify compares, and when it holds.
#include "sync/push/probe.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/error_of.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

TEST(Probe, PromptsAreTheSameInEveryRunAndWithinTheVocabulary) {
    const Prompts prompts = probe_prompts(40);
    EXPECT_EQ(prompts, probe_prompts(40));
    EXPECT_NE(prompts.at(0), prompts.at(1));
    for (const auto& prompt : prompts) {
        for (const std::int32_t token : prompt) EXPECT_TRUE(token >= 0 && token < 40);
    }
}

TEST(Probe, ComparesUpToAndWithTheFirstTokenThatDiffers) {
    const std::vector<Said> expected{{{1, 2, 3}, {-1.0, -1.0, -1.0}}, {{4, 5, 6}, {-2.0, -2.0, -2.0}}};
    EXPECT_EQ(apart(expected, expected).most, 0);
    // After the second token of the first prompt the texts are others.
    const std::vector<Said> found{{{1, 9, 3}, {-1.0, -1.5, -9.0}}, {{4, 5, 6}, {-2.0, -2.0, -2.0}}};
    EXPECT_EQ(apart(found, expected).most, 0.5);
    EXPECT_EQ(apart(found, expected).mean, 0.1);
    EXPECT_THAT(test::error_of([&] { apart({expected[0]}, expected); }), HasSubstr("1 answers to 2 prompts"));
    EXPECT_THAT(test::error_of([&] { apart({}, {}); }), HasSubstr("no token"));
}

TEST(Probe, WhatIsNoNumberDoesNotHold) {
    const double none = std::numeric_limits<double>::quiet_NaN();
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const ProbeReport report{dtype, {}, apart({{{1}, {none}}}, {{{1}, {-1.0}}})};
        EXPECT_FALSE(report.holds());
    }
}

TEST(Probe, HoldsByTheLargestDifferenceInFloat32AndByTheMeanInBfloat16) {
    const Apart apart{.most = 0.5, .mean = 0.01};
    EXPECT_FALSE((ProbeReport{DType::float32, {}, apart}.holds()));
    EXPECT_TRUE((ProbeReport{DType::bfloat16, {}, apart}.holds()));
    EXPECT_TRUE((ProbeReport{DType::float32, {}, Apart{1e-4, 1e-5}}.holds()));
    EXPECT_FALSE((ProbeReport{DType::bfloat16, {}, Apart{5, 2}}.holds()));
    EXPECT_FALSE((ProbeReport{DType::float32, apart, {}}.holds())) << "it was not asked afterwards";
}

TEST(Probe, SaysWhatItFound) {
    const ProbeReport report{DType::float32, Apart{3.25, 1}, Apart{2e-6, 1e-6}};
    EXPECT_EQ(
        report.text(),
        "probe: log-probs differ from the pushed weights' by 2e-06 at most (0.001 is allowed; 3.2 before)");
    EXPECT_THAT((ProbeReport{DType::float32, {}, Apart{1, 1}}.text()), HasSubstr("no answer before"));
    EXPECT_THAT((ProbeReport{DType::bfloat16, Apart{1, 1}, {}}.text()), HasSubstr("before the push"));
    EXPECT_EQ((ProbeReport{DType::float32, {}, {}}.text()), "probe: it did not answer");
    EXPECT_EQ(report.json()["after"]["most"], 2e-6);
    EXPECT_EQ(report.json()["holds"], true);
    EXPECT_EQ((ProbeReport{DType::float32, {}, {}}.json()["before"]), nullptr);
}

}  // namespace
}  // namespace tandem::sync
