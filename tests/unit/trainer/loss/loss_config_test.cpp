// [loss]: what the keys make together, and which combinations are refused.
#include <gmock/gmock.h>

#include "common/error.h"
#include "trainer/loss/config.h"

namespace tandem::trainer {
namespace {

using Ratio = LossOptions::Ratio;
using Aggregation = LossOptions::Aggregation;
using Form = AdvantageOptions::Form;

struct Parsed {
    explicit Parsed(const std::string& toml) { schema.read_text(toml, "q.toml"); }
    RunConfig config;
    config::Schema schema = schema_of(config);
};

LossOptions loss_of(const std::string& toml) {
    return loss_options(Parsed(toml).config);
}
AdvantageOptions advantages_of(const std::string& toml) {
    return advantage_options(Parsed(toml).config);
}

std::string outcome(const std::string& toml) {
    Parsed parsed(toml);
    try {
        check_loss(parsed.config, parsed.schema);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "good";
}

TEST(LossConfig, TheDefaultIsPlainGrpo) {
    const LossOptions loss = loss_of("");
    EXPECT_EQ(loss.ratio, Ratio::token);
    EXPECT_EQ(loss.aggregation, Aggregation::token_mean);
    EXPECT_EQ(loss.clip_low, 0.2f);
    EXPECT_EQ(loss.clip_high, 0.2f);
    EXPECT_EQ(loss.truncation, LossOptions::Truncation::off);
    for (const float off :
         {loss.dual_clip, loss.opsm_delta, loss.kl_coef, loss.entropy_coef, loss.value_coef})
        EXPECT_EQ(off, 0.0f);
    EXPECT_EQ(loss.temperature, 1.0f);
    const AdvantageOptions advantages = advantages_of("");
    EXPECT_EQ(advantages.form, Form::group);
    EXPECT_EQ(advantages.group_size, 8);
    EXPECT_FALSE(advantages.whiten);
    EXPECT_FALSE(needs_reference(Parsed("").config));
    EXPECT_FALSE(needs_value_head(Parsed("").config));
}

TEST(LossConfig, EachAlgorithmBringsItsOwn) {
    const auto toml = [](const std::string& name) { return "[loss]\nalgorithm = '" + name + "'"; };
    struct Row {
        const char* name;
        Form form;
        Ratio ratio;
        Aggregation aggregation;
        bool whiten;
    };
    for (const Row& row : std::vector<Row>{
             {"grpo", Form::group, Ratio::token, Aggregation::token_mean, false},
             {"dr_grpo", Form::centered, Ratio::token, Aggregation::constant, false},
             {"gspo", Form::group, Ratio::sequence, Aggregation::sequence_mean, false},
             {"rloo", Form::leave_one_out, Ratio::token, Aggregation::token_mean, false},
             {"ppo", Form::gae, Ratio::token, Aggregation::token_mean, true},
             {"reinforce++", Form::returns, Ratio::token, Aggregation::token_mean, true},
             {"reinforce++_baseline", Form::baseline, Ratio::token, Aggregation::token_mean, true}}) {
        EXPECT_EQ(outcome(toml(row.name)), "good");
        EXPECT_EQ(loss_of(toml(row.name)).ratio, row.ratio) << row.name;
        EXPECT_EQ(loss_of(toml(row.name)).aggregation, row.aggregation) << row.name;
        EXPECT_EQ(loss_of(toml(row.name)).value_coef, row.form == Form::gae ? 1.0f : 0.0f) << row.name;
        EXPECT_EQ(advantages_of(toml(row.name)).form, row.form) << row.name;
        EXPECT_EQ(advantages_of(toml(row.name)).whiten, row.whiten) << row.name;
        const std::string other = toml(row.name) + "\naggregation = 'sequence'\nwhiten = 'yes'";
        EXPECT_EQ(loss_of(other).aggregation, Aggregation::sequence_mean);
        EXPECT_TRUE(advantages_of(other).whiten);
    }
    EXPECT_EQ(loss_of("[grpo]\nmax_new_tokens = 7\n[loss]\nalgorithm = 'dr_grpo'").constant_length, 7);
    EXPECT_TRUE(needs_value_head(Parsed(toml("ppo")).config));
}

TEST(LossConfig, AnEngineOfOthersIsWeighedUnlessSaidOtherwise) {
    using Truncation = LossOptions::Truncation;
    const std::string vllm = "[engine]\nurl = 'vllm://127.0.0.1:8000'\n[loss]\n";
    EXPECT_EQ(loss_of("").truncation, Truncation::off);
    EXPECT_EQ(loss_of("[engine]\nurl = 'tandem://127.0.0.1:8000'").truncation, Truncation::off);
    EXPECT_EQ(loss_of(vllm).truncation, Truncation::clamp);
    EXPECT_EQ(loss_of(vllm + "tis = 'off'").truncation, Truncation::off);
    EXPECT_EQ(loss_of(vllm + "tis = 'icepop'").truncation, Truncation::band);
}

TEST(LossConfig, KeysReachTheirOptions) {
    const LossOptions loss = loss_of(
        "[grpo]\nclip = 0.1\ntemperature = 0.5\n[loss]\nclip_high = 0.3\ndual_clip = 3\ntis = 'icepop'\n"
        "tis_low = 0.5\ntis_high = 1.5\nopsm_delta = 0.25\nkl = 'k3'\nkl_coef = 0.125\nentropy_coef = 0.5");
    EXPECT_EQ(loss.clip_low, 0.1f);
    EXPECT_EQ(loss.clip_high, 0.3f);
    EXPECT_EQ(loss.dual_clip, 3.0f);
    EXPECT_EQ(loss.truncation, LossOptions::Truncation::band);
    EXPECT_EQ(loss.tis_low, 0.5f);
    EXPECT_EQ(loss.tis_high, 1.5f);
    EXPECT_EQ(loss.opsm_delta, 0.25f);
    EXPECT_EQ(loss.kl, KlForm::k3);
    EXPECT_EQ(loss.kl_coef, 0.125f);
    EXPECT_EQ(loss.entropy_coef, 0.5f);
    EXPECT_EQ(loss.temperature, 0.5f);
}

TEST(LossConfig, TheKlGoesToOnePlaceOnly) {
    const std::string in_loss = "[loss]\nkl_coef = 0.5", in_reward = in_loss + "\nkl_in = 'reward'";
    EXPECT_EQ(loss_of(in_loss).kl_coef, 0.5f);
    EXPECT_EQ(advantages_of(in_loss).kl_coef, 0.0f);
    EXPECT_EQ(loss_of(in_reward).kl_coef, 0.0f);
    EXPECT_EQ(advantages_of(in_reward).kl_coef, 0.5f);
    EXPECT_TRUE(needs_reference(Parsed(in_reward).config));
}

TEST(LossConfig, RefusesWhatMakesNoSense) {
    const std::vector<std::pair<std::string, std::string>> table = {
        {"[loss]\nalgorithm = 'dpo'", "q.toml:2: loss.algorithm: expects one of"},
        {"[loss]\ndual_clip = 0.9", "q.toml:2: loss.dual_clip: 0.9 would bound ratios that are good"},
        {"[loss]\ntis_low = 3", "q.toml:2: loss.tis_low: 3 is above tis_high 2"},
        {"[loss]\nratio = 'none'", "q.toml:2: loss.ratio: none: nothing corrects the second of 2 updates"},
        {"[grpo]\nupdates = 1\n[loss]\nratio = 'none'\nclip_high = 0.3",
         "q.toml:5: loss.clip_high: has no meaning without a ratio"},
        {"[loss]\nalgorithm = 'ppo'\nratio = 'sequence'", "q.toml:3: loss.ratio: sequence: a sequence has"},
        {"[loss]\nalgorithm = 'reinforce++'\nratio = 'sequence'", "q.toml:3: loss.ratio: sequence"},
        {"[loss]\nreference = '/tmp'", "q.toml:2: loss.reference: has no meaning while kl_coef is 0"},
        {"[loss]\nreference_every = 3", "q.toml:2: loss.reference_every: has no meaning while kl_coef is 0"},
        {"[loss]\nkl_in = 'reward'", "q.toml:2: loss.kl_in: reward has no meaning while kl_coef is 0"},
        {"[loss]\nkl_coef = 0.1\nkl = 'k1'", "q.toml:3: loss.kl: k1 as a term of the loss"},
        {"[grpo]\nsamples = 1", "q.toml:2: grpo.samples: 1: grpo compares the samples of a prompt"},
        {"[loss]\nwhiten_rewards = true", "q.toml:2: loss.whiten_rewards: grpo normalises the rewards"},
        {"[loss]\ngamma = 0.9", "q.toml:2: loss.gamma: grpo does not discount"},
        {"[loss]\nalgorithm = 'reinforce++'\nlambda = 0.9", "q.toml:3: loss.lambda: reinforce++ has no GAE"},
        {"[loss]\nvalue_lr = 0.1", "q.toml:2: loss.value_lr: grpo has no value head"},
        {"[train]\nlr = 0\n[loss]\nalgorithm = 'ppo'\nvalue_lr = 0.1",
         "q.toml:5: loss.value_lr: follows the schedule of train.lr, which is 0"},
        {"[loss]\nalgorithm = 'ppo'\nvalue_coef = 0", "q.toml:3: loss.value_coef: 0: ppo would never train"},
    };
    for (const auto& [toml, message] : table) {
        std::string found;
        try {
            found = outcome(toml);
        } catch (const ConfigError& error) {  // one of the schema's own
            found = error.what();
        }
        EXPECT_THAT(found, testing::HasSubstr(message)) << toml;
    }
}

TEST(LossConfig, WhatMakesSenseIsTaken) {
    for (const char* toml :
         {"[loss]\nkl_coef = 0.1\nkl = 'k1'\nkl_in = 'reward'", "[grpo]\nupdates = 1\n[loss]\nratio = 'none'",
          "[grpo]\nsamples = 1\n[loss]\nalgorithm = 'ppo'\ngamma = 0.9\nlambda = 0.5",
          "[grpo]\nsamples = 1\n[loss]\nalgorithm = 'reinforce++'\ngamma = 0.9\nwhiten_rewards = true",
          "[loss]\nalgorithm = 'rloo'\nratio = 'sequence'\nkl_coef = 0.1\nreference_every = 5"}) {
        EXPECT_EQ(outcome(toml), "good") << toml;
    }
}

}  // namespace
}  // namespace tandem::trainer
