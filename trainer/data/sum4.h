// The task "sum4": `a+b+c+d=` with four digits; the answer is the decimal sum without padding, then EOS. The
// teacher drops the tens digit now and then, so a model that only imitates it is wrong about as often.
#pragma once

#include "trainer/data/task.h"

namespace tandem::trainer {

class Sum4 final : public Task {
  public:
    static constexpr std::int32_t kPlus = 10, kEquals = 11, kEos = 12;  // digits are their own ids
    static constexpr std::int64_t kPrompts = 10000;

    Sum4(std::int64_t held_out, double teacher_noise);

    std::string name() const override { return "sum4"; }
    std::int64_t vocab_size() const override { return 13; }
    std::vector<std::int32_t> stop_tokens() const override { return {kEos}; }
    std::int64_t longest_prompt() const override { return 8; }
    std::int64_t longest_answer() const override { return 3; }
    std::int64_t size() const override { return kPrompts; }
    std::int64_t train_size() const override { return kPrompts - held_out_; }
    std::int64_t held_out_size() const override { return held_out_; }
    Tokens train_prompt(std::int64_t index) const override;
    Tokens held_out_prompt(std::int64_t index) const override;
    Prompt ask(PromptId id) const override;  // without its text
    bool in_epochs() const override { return false; }
    Tokens teach(std::int64_t index, Random& random) const override;
    Tokens teach(std::span<const std::int32_t> prompt, Random& random) const;
    std::vector<double> rewards(std::span<const Attempt> attempts) const override;
    double reward(std::span<const std::int32_t> prompt, std::span<const std::int32_t> completion) const;
    std::string text(std::span<const std::int32_t> tokens) const override;

  private:
    std::int64_t held_out_;
    double teacher_noise_;
    std::vector<std::int64_t> order_;  // a fixed permutation of the prompts; held-out ones first
};

}  // namespace tandem::trainer
