// Log-probs, loss and gradients against Hugging Face transformers (tests/golden/make_trainer.py).
#include <gtest/gtest.h>

#include "common/comm/launch.h"
#include "common/model/safetensors.h"
#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {
namespace {

void expect_like_transformers(const std::string& name) {
    const std::string directory = std::string(TANDEM_SOURCE_DIR) + "/tests/golden/data/" + name;
    const model::ModelConfig config = model::read_model_config(directory);
    const auto golden = model::Safetensors::open(directory);
    Policy policy(DeviceMesh::create(comm::solo(), {1, 1}, {"dp", "cp"}), config, {});
    for (const auto& [parameter, tensor] : policy.parameters()) {
        policy.load_parameter(parameter, golden.tensor("weight." + parameter));
    }
    std::vector<Sample> samples;
    std::vector<std::vector<float>> expected;
    for (const char* index : {"0", "1"}) {
        Sample& sample = samples.emplace_back();
        sample.tokens = golden.tensor(std::string("tokens.") + index).to_vector<std::int32_t>();
        sample.target_mask.assign(sample.tokens.size(), 1);
        expected.push_back(golden.tensor(std::string("logprobs.") + index).to_vector<float>());
    }
    const auto logprobs = policy.logprobs(samples);
    double sum = 0;
    double count = 0;
    for (std::size_t s = 0; s < samples.size(); ++s) {
        for (std::size_t i = 0; i < expected[s].size(); ++i) {
            EXPECT_NEAR(logprobs[s][i + 1], expected[s][i], 1e-4)
                << name << " sample " << s << " token " << i + 1;
            sum -= static_cast<double>(expected[s][i]);
            count += 1;
        }
    }
    EXPECT_NEAR(policy.accumulate(samples, supervised_loss()).loss, sum / count, 1e-5);
    for (const auto& [parameter, gradient] : full_values(policy.gradients())) {
        EXPECT_LE(relative_difference(gradient, golden.tensor("grad." + parameter).to_vector<float>()), 1e-4)
            << name << " " << parameter;
    }
}

TEST(Golden, Qwen3Tied) {
    expect_like_transformers("qwen3_tied");
}
TEST(Golden, Qwen3Untied) {
    expect_like_transformers("qwen3_untied");
}
TEST(Golden, LlamaTied) {
    expect_like_transformers("llama_tied");
}

}  // namespace
}  // namespace tandem::trainer::testing
