// A small model with known weights, and the oracle: its forward pass, naive and in fp64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/model_config.h"
#include "engine_adapter/receiver/weight_target.h"

namespace tandem::engine {

struct TinyOptions {
    bool qk_norm = true;
    bool tied = true;
    std::int64_t layers = 2;
    std::int64_t context = 96;
    std::int32_t eos = -1;
    bool qkv_bias = false;
    bool other_biases = false;  // of o, gate, up and down
    model::RopeScaling rope = {};
    std::int64_t head_dim = 8;
    std::int64_t heads = 4;
    std::int64_t kv_heads = 2;
};
model::ModelConfig tiny_config(const TinyOptions& options = {});

// Random values that depend on `seed` and on a tensor's place in the list only; norms lie around 1.
void fill_weights(const std::vector<WeightSlot>& slots, std::uint64_t seed);
// The same weights as a Hugging Face directory (config.json, model.safetensors).
void write_tiny_model(const std::string& directory, const model::ModelConfig& config, std::uint64_t seed);

// log softmax(logits / temperature) after each of the tokens: [tokens][vocab]. Reads float32 slots.
std::vector<std::vector<double>> naive_logprobs(const model::ModelConfig& config,
                                                const std::vector<WeightSlot>& slots,
                                                const std::vector<std::int32_t>& tokens,
                                                double temperature = 1.0);

}  // namespace tandem::engine
