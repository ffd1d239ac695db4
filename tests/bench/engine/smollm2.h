// The shapes of SmolLM2-135M, with as many layers as a bench has time for.
#pragma once

#include <cstdint>

#include "common/model/model_config.h"

namespace tandem::engine {

inline model::ModelConfig smollm2_135m(std::int64_t layers) {
    model::ModelConfig config;
    config.vocab_size = 49152;
    config.hidden_size = 576;
    config.intermediate_size = 1536;
    config.num_hidden_layers = layers;
    config.num_attention_heads = 9;
    config.num_key_value_heads = 3;
    config.head_dim = 64;
    config.max_position_embeddings = 8192;
    config.qk_norm = false;
    return config;
}

}  // namespace tandem::engine
