// Beside PyTorch's parallelize_module, and fully_shard over it, on the same weights (tests/golden/make_tensor_parallel.py):
// which elements of every parameter lie on which rank, loss, log-probs and gradients.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/comm/launch.h"
#include "common/model/safetensors.h"
#include "tests/unit/trainer/tensor_parallel/tensor_run.h"

namespace tandem::trainer::testing {
namespace {

using nlohmann::json;

constexpr double kGoldenTolerance = 1e-5;

// make_tensor_parallel.py has the same formulas, with the same names.
std::uint64_t draw(const std::string& name, std::uint64_t index) {
    std::uint64_t x = 0xCBF29CE484222325;
    for (const char byte : name) x = (x ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
    x += index * 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return (x ^ (x >> 31)) >> 44;
}

Tensor weight(const std::string& name, const Shape& shape) {
    const Tensor result = Tensor::zeros(shape, DType::float32, "test");
    std::uint64_t index = 0;
    for (float& value : result.values<float>()) {
        value = (static_cast<float>(draw(name, index++)) / (1 << 19) - 1) / 4;
        if (name.ends_with("norm.weight")) value += 1;
    }
    return result;
}

double position_sum(const std::vector<float>& local) {
    double sum = 0;
    for (std::size_t i = 0; i < local.size(); ++i)
        sum += static_cast<double>(local[i]) * static_cast<double>(i + 1);
    return sum;
}

class Golden : public ::testing::TestWithParam<const char*> {
  protected:
    const std::string directory_ =
        std::string(TANDEM_SOURCE_DIR) + "/tests/golden/data/tensor_parallel/" + GetParam();
    const model::ModelConfig config_ = model::read_model_config(directory_);
    const model::Safetensors values_ = model::Safetensors::open(directory_);

    std::vector<float> values(const std::string& name) const {
        return values_.tensor(name).to_vector<float>();
    }
    std::vector<std::vector<float>> logprobs() const { return {values("logprobs.0"), values("logprobs.1")}; }

    std::vector<Sample> samples() const {
        std::vector<Sample> result;
        for (const std::vector<float>& targets : logprobs()) {
            const std::string name = "tokens." + std::to_string(result.size());
            Sample& sample = result.emplace_back();
            for (std::uint64_t i = 0; i <= targets.size(); ++i) {
                const std::uint64_t token = draw(name, i) % static_cast<std::uint64_t>(config_.vocab_size);
                sample.tokens.push_back(static_cast<std::int32_t>(token));
            }
            sample.target_mask.assign(sample.tokens.size(), 1);
        }
        return result;
    }

    void expect_local(const Policy& policy, const json& local, std::size_t rank) const {
        ASSERT_EQ(local.size(), policy.parameters().size());
        for (const auto& [name, tensor] : policy.parameters()) {
            const auto [shape, sum] = local.at(name).at(rank).get<std::pair<Shape, double>>();
            const std::vector<float> here = tensor.local().to_vector<float>();
            EXPECT_EQ(tensor.local().shape(), shape) << name << " of rank " << rank;
            EXPECT_NEAR(position_sum(here), sum, 1e-9 * std::max(1.0, std::abs(sum)))
                << name << " of rank " << rank << ": other elements, or in another order";
        }
    }

    void expect_results(Policy& policy) const {
        const Scores::PerToken found = policy.logprobs(samples()), wanted = logprobs();
        for (std::size_t s = 0; s < wanted.size(); ++s) {
            for (std::size_t i = 0; i < wanted[s].size(); ++i)
                EXPECT_NEAR(found[s][i + 1], wanted[s][i], kGoldenTolerance * std::abs(wanted[s][i]))
                    << "sample " << s << " token " << i + 1;
        }
        const double loss = static_cast<double>(values("loss")[0]);
        EXPECT_NEAR(policy.accumulate(samples(), supervised_loss()).loss, loss, kGoldenTolerance * loss);
        Values gradients;
        for (const auto& [name, tensor] : policy.parameters()) gradients[name] = values("grad." + name);
        expect_close("gradient", full_values(policy.gradients()), gradients, kGoldenTolerance);
    }
};

TEST_P(Golden, ElementsAndGradientsAreThoseOfPyTorch) {
    std::ifstream in(directory_ + "/shapes.json");
    for (const json& mesh : json::parse(in)) {
        const MeshSizes sizes{.dp = mesh.at("dp"), .tp = mesh.at("tp")};
        PolicyOptions options;
        options.sequence_parallel = mesh.at("sequence_parallel");
        const ::testing::ScopedTrace trace(
            __FILE__, __LINE__, describe(sizes) + (options.sequence_parallel ? " sequence_parallel" : ""));
        comm::run_threads(sizes.ranks(), [&](const std::shared_ptr<comm::Communicator>& world) {
            const auto rank = static_cast<std::size_t>(world->rank());
            Policy policy(make_mesh(world, sizes), config_, options);
            for (const model::ParameterSpec& spec : model::parameter_specs(config_))
                policy.load_parameter(spec.name, weight(spec.name, spec.shape));
            expect_local(policy, mesh.at("local"), rank);
            expect_results(policy);
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, ::testing::Values("llama_biases", "qwen2_tied", "qwen3_untied"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tandem::trainer::testing
