// How much of a prompt one forward pass prefills. Requests, pauses and the decode of others wait until a pass
// ends, so it is kept to kPassSeconds; but where a model is so large that so short a pass would mostly read
// weights, to the work of kFewestTokens. A token costs more the more lie before it, so pieces get shorter
// along a prompt.
//
// Where prompts are cut changes no bit of what comes of them (decoder.h), so this may follow the time that
// passes took. No clock here: who runs the passes has one.
#pragma once

#include <cstdint>

#include "common/model/model_config.h"

namespace tandem::engine {

class PrefillBudget {
  public:
    static constexpr double kPassSeconds = 0.06;
    static constexpr std::int64_t kFewestTokens = 384;  // of a prompt's beginning

    // most_tokens: of a piece, whatever they cost: its activations take memory. fixed_tokens: a pass costs
    // what so many tokens of a prompt's beginning cost, always; 0: what a pass of kPassSeconds has cost
    // lately.
    PrefillBudget(const model::ModelConfig& config, std::int64_t page_size, std::int64_t most_tokens,
                  std::int64_t fixed_tokens);

    // Operations of `count` tokens with `begin` before them in their prompt: about those that take time.
    double cost(std::int64_t begin, std::int64_t count) const;
    // Of a pass.
    double operations() const;
    // How many of the `left` tokens behind `begin`, where a page begins, are worth so many operations: all,
    // or whole pages, at least one.
    std::int64_t tokens(std::int64_t begin, std::int64_t left, double operations) const;
    // What a pass has taken.
    void took(double operations, double seconds);

  private:
    std::int64_t page_size_, most_tokens_, fixed_tokens_;
    double of_token_;  // operations beside attention
    double of_pair_;   // of a token and one that it sees
    double rate_ = 0;  // operations a second, lately; 0: no pass yet
};

}  // namespace tandem::engine
