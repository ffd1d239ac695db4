// Every loss and advantage form against PyTorch (tests/golden/make_losses.py): the loss, and its gradient
// through a whole model with a value head.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/comm/launch.h"
#include "common/model/safetensors.h"
#include "tests/unit/trainer/policy/policy_run.h"
#include "trainer/loss/batch_advantages.h"
#include "trainer/loss/batch_loss.h"
#include "trainer/loss/kl.h"

namespace tandem::trainer::testing {
namespace {

using nlohmann::json;

const std::string kData = std::string(TANDEM_SOURCE_DIR) + "/tests/golden/data/";

json read_cases() {
    std::ifstream in(kData + "losses/cases.json");
    return json::parse(in);
}

LossOptions options_of(const json& c) {
    using Ratio = LossOptions::Ratio;
    using Truncation = LossOptions::Truncation;
    using Aggregation = LossOptions::Aggregation;
    const std::map<std::string, Ratio> ratios{{"token", Ratio::token},
                                              {"sequence", Ratio::sequence},
                                              {"none", Ratio::none},
                                              {"supervised", Ratio::supervised}};
    const std::map<std::string, Truncation> truncations{
        {"off", Truncation::off}, {"clamp", Truncation::clamp}, {"band", Truncation::band}};
    const std::map<std::string, Aggregation> aggregations{{"token_mean", Aggregation::token_mean},
                                                          {"sequence_mean", Aggregation::sequence_mean},
                                                          {"constant", Aggregation::constant}};
    LossOptions o;
    o.ratio = ratios.at(c.value("ratio", "token"));
    o.clip_low = c.value("clip_low", 0.2f);
    o.clip_high = c.value("clip_high", 0.2f);
    o.dual_clip = c.value("dual_clip", 0.0f);
    o.truncation = truncations.at(c.value("truncation", "off"));
    o.tis_low = c.value("tis_low", 0.0f);
    o.tis_high = c.value("tis_high", 2.0f);
    o.opsm_delta = c.value("opsm_delta", 0.0f);
    o.kl = kl_form_from_name(c.value("kl", "low_var"));
    o.kl_coef = c.value("kl_coef", 0.0f);
    o.entropy_coef = c.value("entropy_coef", 0.0f);
    o.value_coef = c.value("value_coef", 0.0f);
    o.aggregation = aggregations.at(c.value("aggregation", "token_mean"));
    o.constant_length = c.value("constant_length", 1.0);
    o.temperature = c.value("temperature", 1.0f);
    return o;
}

std::vector<Sample> batch_of(const model::Safetensors& golden) {
    std::vector<Sample> samples;
    for (const std::string index : {".0", ".1", ".2"}) {
        const auto floats = [&](const char* name) { return golden.tensor(name + index).to_vector<float>(); };
        Sample& sample = samples.emplace_back();
        sample.tokens = golden.tensor("tokens" + index).to_vector<std::int32_t>();
        for (const std::int32_t bit : golden.tensor("mask" + index).to_vector<std::int32_t>())
            sample.target_mask.push_back(static_cast<std::uint8_t>(bit));
        sample.advantages = floats("advantages");
        sample.old_logprobs = floats("old");
        sample.rollout_logprobs = floats("rollout");
        sample.reference_logprobs = floats("reference");
        sample.values = floats("values");
        sample.returns = floats("returns");
    }
    return samples;
}

// With chunks of `chunk_rows` targets, whose two passes the sequence losses need.
void expect_like_torch(std::int64_t chunk_rows) {
    const auto golden = model::Safetensors::open(kData + "losses");
    const auto weights = model::Safetensors::open(kData + "qwen3_tied");
    const std::vector<Sample> samples = batch_of(golden);
    PolicyOptions policy_options;
    policy_options.value_head = true;
    policy_options.logits_chunk_rows = chunk_rows;
    Policy policy(DeviceMesh::create(comm::solo(), {1, 1}, {"dp", "cp"}),
                  model::read_model_config(kData + "qwen3_tied"), policy_options);
    for (const auto& [name, tensor] : policy.parameters())
        policy.load_parameter(name, weights.tensor("weight." + name));
    policy.load_parameter("value_head.weight", golden.tensor("value_head.weight"));
    int compared = 0;
    const json cases = read_cases()["cases"];
    for (const auto& [name, wanted] : cases.items()) {
        const LossOptions options = options_of(wanted);
        const StepStats stats = policy.accumulate(samples, options);
        EXPECT_NEAR(stats.loss, wanted["loss"].get<double>(), 1e-5) << name;
        for (const auto& [parameter, gradient] : full_values(policy.gradients())) {
            const std::string key = "grad." + name + "." + parameter;
            if (!golden.contains(key)) continue;
            EXPECT_LE(relative_difference(gradient, golden.tensor(key).to_vector<float>()), 5e-5) << key;
            ++compared;
        }
        policy.apply(0);  // a learning rate of 0: only the gradients go
    }
    EXPECT_EQ(compared, 4 * static_cast<int>(cases.size()) + 2);  // two cases train the value head
}

TEST(LossGolden, LossesAndGradientsAreTorchs) {
    expect_like_torch(1024);
}
TEST(LossGolden, AlsoInSeveralChunks) {
    expect_like_torch(4);
}

TEST(LossGolden, EveryTermOfTheCasesIsAtWork) {
    const json cases = read_cases()["cases"];
    for (const auto& [name, wanted] : cases.items()) {
        if (name == "grpo") continue;
        EXPECT_GT(std::abs(wanted["loss"].get<double>() - cases["grpo"]["loss"].get<double>()), 1e-4) << name;
    }
    EXPECT_NE(cases["kl_k3"]["loss"], cases["kl_low_var"]["loss"]);  // a token is clamped
}

TEST(LossGolden, AdvantagesAreTorchs) {
    using Form = AdvantageOptions::Form;
    const json wanted = read_cases()["advantages"];
    std::vector<Sample> samples = batch_of(model::Safetensors::open(kData + "losses"));
    samples.push_back(samples.back());
    const auto rewards = wanted["rewards"].get<std::vector<float>>();
    AdvantageOptions options;
    options.gamma = wanted["gamma"];
    options.lambda = wanted["lambda"];
    options.kl = KlForm::k1;
    options.kl_coef = wanted["kl_coef"];
    options.group_size = wanted["group_size"];
    const auto expect = [&](const std::string& name, const std::vector<float> Sample::*field) {
        for (std::size_t s = 0; s < samples.size(); ++s) {
            const std::vector<std::size_t> targets = target_positions(samples[s]);
            const auto expected = wanted["forms"][name][s].get<std::vector<float>>();
            ASSERT_EQ(targets.size(), expected.size());
            for (std::size_t t = 0; t < targets.size(); ++t) {
                EXPECT_NEAR((samples[s].*field)[targets[t]], expected[t], 2e-6)
                    << name << " sample " << s << " step " << t;
            }
        }
    };
    for (const auto& [name, form] : std::map<std::string, Form>{{"group", Form::group},
                                                                {"centered", Form::centered},
                                                                {"leave_one_out", Form::leave_one_out},
                                                                {"gae", Form::gae},
                                                                {"returns", Form::returns},
                                                                {"baseline", Form::baseline}}) {
        options.form = form;
        options.whiten = false;
        set_advantages(samples, rewards, options);
        expect(name, &Sample::advantages);
        if (form == Form::gae) expect("gae_returns", &Sample::returns);
        if (!wanted["forms"].contains(name + "_whitened")) continue;
        options.whiten = true;
        set_advantages(samples, rewards, options);
        expect(name + "_whitened", &Sample::advantages);
    }
}

}  // namespace
}  // namespace tandem::trainer::testing
