// metric_value against texts as Prometheus's clients write them.
#include "common/http/metrics.h"

#include <gtest/gtest.h>

namespace tandem::http {
namespace {

constexpr const char* kText =
    "# HELP vllm:engine_sleep_state Engine sleep state; awake = 0 means engine is sleeping\n"
    "# TYPE vllm:engine_sleep_state gauge\n"
    "vllm:engine_sleep_state{engine=\"0\",model_name=\"a } b\",sleep_state=\"awake\"} 0.0\n"
    "vllm:engine_sleep_state{engine=\"0\",model_name=\"a } b\",sleep_state=\"discard_all\"} 1.0 1700000000\n"
    "vllm:engine_sleep_state_created{sleep_state=\"other\"} 7\n"
    "plain 3\n";

TEST(Metrics, TheValueOfOneLabel) {
    const auto value = [](const char* label) {
        return metric_value(kText, "vllm:engine_sleep_state", label);
    };
    EXPECT_EQ(value("sleep_state=\"awake\""), 0.0);
    EXPECT_EQ(value("sleep_state=\"discard_all\""), 1.0);
    EXPECT_EQ(value("engine=\"0\""), 0.0);
    EXPECT_EQ(value("state=\"awake\""), std::nullopt);        // another label's end
    EXPECT_EQ(value("sleep_state=\"other\""), std::nullopt);  // another metric's
    EXPECT_EQ(value("engine=\"1\""), std::nullopt);
}

TEST(Metrics, WhatIsNoneIsNone) {
    for (const char* text :
         {"", "\n\n", "m", "m{", "m{a=\"1\"}", "m{a=\"1\"} \n", "m{a=\"1\"} x", "}m{a=\"1\" 2"})
        EXPECT_EQ(metric_value(text, "m", "a=\"1\""), std::nullopt) << text;
    EXPECT_EQ(metric_value("m{a=\"1\"} 2", "m", "a=\"1\""), 2.0);
}

}  // namespace
}  // namespace tandem::http
