// Forward passes of a Hugging Face directory by the trainer's decoder and by the engine's, with more to see
// than either needs to show: log-probs of any tokens after any position, logits at every position.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/model/model_config.h"
#include "common/tensor/tensor.h"

namespace tandem::testing {

using Tokens = std::vector<std::int32_t>;

// By trainer/nn's Decoder on one rank, weights and activations in `dtype`: [position][candidate] log-probs of
// candidates[position] after tokens[0 … position].
std::vector<std::vector<float>> trainer_logprobs(const std::string& directory, DType dtype,
                                                 const Tokens& tokens, const std::vector<Tokens>& candidates);
// Every token of the vocabulary at every position.
std::vector<Tokens> whole_vocabulary(const model::ModelConfig& config, std::size_t positions);

// By the engine's decoder: after the first `prompt` tokens in one prefill, then token by token:
// [tokens.size() - prompt + 1, vocab] float32.
Tensor engine_logits(const std::string& directory, DType dtype, const Tokens& tokens, std::size_t prompt = 1);
Tokens engine_greedy(const std::string& directory, DType dtype, const Tokens& prompt, std::size_t count);

// What a policy learns: ten AdamW steps (families.py) on one batch, masks as in families.py.
struct Trained {
    double loss = 0;                           // before the first step
    std::map<std::string, Tensor> gradients;   // of the first step
    std::map<std::string, Tensor> parameters;  // after the last
    std::vector<std::vector<float>> logprobs;  // Policy's own, of the targets, before the first step
};
Trained train(const std::string& directory, DType dtype, const std::vector<Tokens>& tokens,
              const std::vector<Tokens>& masks);

}  // namespace tandem::testing
