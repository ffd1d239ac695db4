#include "tests/unit/trainer/policy/policy_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <random>

#include "common/comm/launch.h"
#include "common/device/devices.h"
#include "common/tensor/host_access.h"

namespace tandem::trainer::testing {

model::ModelConfig tiny_config() {
    model::ModelConfig config;
    config.vocab_size = 13;
    config.hidden_size = 10;
    config.intermediate_size = 9;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 6;
    config.max_position_embeddings = 256;
    config.rope_theta = 100.0f;
    return config;
}

std::vector<Sample> random_samples(const std::vector<int>& lengths, std::int64_t vocab, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<Sample> samples;
    for (const int length : lengths) {
        Sample& sample = samples.emplace_back();
        for (int i = 0; i < length; ++i) {
            sample.tokens.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab)));
            sample.target_mask.push_back(random() % 3 != 0 ? 1 : 0);
            sample.advantages.push_back(normal(random));
            sample.old_logprobs.push_back(-std::log(static_cast<float>(vocab)) + 0.2f * normal(random));
        }
    }
    return samples;
}

std::map<std::string, std::vector<float>> full_values(
    const std::vector<std::pair<std::string, DTensor>>& tensors) {
    std::map<std::string, std::vector<float>> result;
    HostAccess access;
    for (const auto& [name, tensor] : tensors) {
        if (!tensor.is_here()) continue;  // of another stage
        const DTensor here = DTensor::from_local(access.read(tensor.local()), tensor.mesh(),
                                                 tensor.placements(), tensor.shape());
        result[name] = here.full_tensor().to_vector<float>();
    }
    return result;
}

Device device_of(int rank) {
    const char* name = std::getenv("TANDEM_TEST_DEVICE");
    if (name == nullptr || std::string(name) == "cpu") return {};
    const auto gpus = static_cast<int>(available_devices().size()) - 1;
    require(gpus > 0, "TANDEM_TEST_DEVICE is {}, and there is no GPU", name);
    return {DeviceType::cuda, rank % gpus};
}

DeviceMesh make_mesh(std::shared_ptr<comm::Communicator> world, MeshSizes sizes) {
    std::vector<int> degrees{sizes.dp, sizes.cp};
    std::vector<std::string> names{"dp", "cp"};
    if (sizes.dp_replicate != 0) {
        degrees = {sizes.dp_replicate, sizes.dp / sizes.dp_replicate, sizes.cp};
        names = {"dp_replicate", "dp_shard", "cp"};
    }
    if (sizes.tp != 0) {
        degrees.push_back(sizes.tp);
        names.emplace_back("tp");
    }
    if (sizes.pp != 0) {
        degrees.insert(degrees.begin(), sizes.pp);
        names.insert(names.begin(), "pp");
    }
    return DeviceMesh::create(std::move(world), degrees, names);
}

Outcome run_rank(std::shared_ptr<comm::Communicator> world, MeshSizes sizes, const model::ModelConfig& config,
                 PolicyOptions options, const std::vector<Sample>& samples, const LossOptions& loss,
                 const Prepare& prepare) {
    options.device = device_of(world->rank());
    Policy policy(make_mesh(std::move(world), sizes), config, options);
    if (prepare) prepare(policy);
    Outcome outcome;
    outcome.logprobs = policy.logprobs(samples);
    outcome.stats = policy.accumulate(samples, loss);
    {
        const Policy::OnloadScope onloaded(policy);
        outcome.gradients = full_values(policy.gradients());
    }
    outcome.stats.grad_norm = policy.apply(1e-3);
    const Policy::OnloadScope onloaded(policy);
    outcome.parameters = full_values(policy.parameters());
    outcome.parameters.merge(full_values(policy.extra_parameters()));
    return outcome;
}

Outcome run_mesh(MeshSizes sizes, const model::ModelConfig& config, const PolicyOptions& options,
                 const std::vector<Sample>& samples, const LossOptions& loss, const Prepare& prepare) {
    std::mutex mutex;
    std::vector<Outcome> outcomes(static_cast<std::size_t>(sizes.ranks()));
    comm::run_threads(sizes.ranks(), [&](std::shared_ptr<comm::Communicator> world) {
        const auto rank = static_cast<std::size_t>(world->rank());
        Outcome outcome = run_rank(std::move(world), sizes, config, options, samples, loss, prepare);
        const std::lock_guard lock(mutex);
        outcomes[rank] = std::move(outcome);
    });
    for (const Outcome& outcome : outcomes) {
        EXPECT_EQ(outcome.stats.loss, outcomes[0].stats.loss);
        EXPECT_EQ(outcome.stats.grad_norm, outcomes[0].stats.grad_norm);
        EXPECT_EQ(outcome.logprobs, outcomes[0].logprobs);
    }
    return outcomes[0];
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        difference += d * d;
        norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    }
    return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

}  // namespace tandem::trainer::testing
