// The oracle: the same decoder, written naively in double precision, one sequence at a time, with finite
// differences for the gradient. It shares no code with what it checks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/model/model_config.h"
#include "trainer/data/sample.h"

namespace tandem::trainer::testing {

using Weights = std::map<std::string, std::vector<double>>;

// Log-probability of every next token of a sequence: result[i] belongs to tokens[i + 1].
std::vector<double> reference_logprobs(const model::ModelConfig& config, const Weights& weights,
                                       const std::vector<std::int32_t>& tokens);
// Mean of -advantage * logprob over all targets (advantage 1 where the sample has none): the supervised loss,
// weighted.
double reference_loss(const model::ModelConfig& config, const Weights& weights,
                      const std::vector<Sample>& samples);
// Central differences of reference_loss, every element.
Weights reference_gradients(const model::ModelConfig& config, const Weights& weights,
                            const std::vector<Sample>& samples);

}  // namespace tandem::trainer::testing
