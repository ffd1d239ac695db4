#include "tests/support/rollout_sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "common/model/safetensors.h"
#include "tests/support/model_forward.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;

// temperature 0: the likeliest. The log-prob is the one that is sampled by.
std::pair<std::int32_t, double> sample(const Tensor& logits, double temperature, std::mt19937_64& random) {
    const auto* row = reinterpret_cast<const float*>(logits.raw());
    const auto count = static_cast<std::size_t>(logits.numel());
    const double scale = temperature == 0 ? 1 : 1 / temperature;
    const double most = static_cast<double>(*std::max_element(row, row + count));
    std::vector<double> weights;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
        weights.push_back(std::exp((static_cast<double>(row[i]) - most) * scale));
        sum += weights.back();
    }
    const std::size_t chosen =
        temperature == 0
            ? static_cast<std::size_t>(std::max_element(weights.begin(), weights.end()) - weights.begin())
            : std::discrete_distribution<std::size_t>(weights.begin(), weights.end())(random);
    return {static_cast<std::int32_t>(chosen), std::log(weights[chosen] / sum)};
}

}  // namespace

RolloutSampler::RolloutSampler(HeldWeights held, RolloutRoutes options)
    : held_(std::move(held)), options_(std::move(options)) {}

Sampled RolloutSampler::complete(std::vector<std::int32_t> tokens, const SamplerRequest& request) {
    const std::string directory = held_directory();
    std::mt19937_64 random(request.seed);
    Sampled answer;
    while (!answer.stopped && answer.tokens.size() < request.max_tokens) {
        const Tensor logits =
            tandem::testing::engine_logits(directory, DType::float32, tokens, tokens.size());
        const auto [token, logprob] = sample(logits, request.temperature, random);
        tokens.push_back(token);
        answer.tokens.push_back(token);
        answer.logprobs.push_back(logprob);
        answer.stopped =
            std::find(request.stops.begin(), request.stops.end(), token) != request.stops.end() ||
            (token == options_.eos && !request.ignore_eos);
    }
    return answer;
}

// The weights that the server holds now, as a directory.
std::string RolloutSampler::held_directory() {
    const std::string directory = options_.scratch + "/held";
    if (version_ == held_.version()) return directory;
    fs::create_directories(directory);
    fs::copy(fs::path(options_.model) / "config.json", directory, fs::copy_options::overwrite_existing);
    const auto files = model::Safetensors::open(options_.model);
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const std::string& name : files.names()) {
        Tensor tensor = Tensor::empty(files.shape(name), files.dtype(name), "test");
        const std::string& bytes = held_.weights().at(name);
        if (bytes.size() != tensor.bytes()) held_.violate(name + " has another size");
        std::memcpy(tensor.raw(), bytes.data(), std::min(bytes.size(), tensor.bytes()));
        tensors.emplace_back(name, tensor);
    }
    model::write_safetensors(directory + "/model.safetensors", tensors);
    version_ = held_.version();
    return directory;
}

}  // namespace tandem::test
