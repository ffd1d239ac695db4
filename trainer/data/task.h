// A task with a verifiable reward: prompts as token ids, a teacher for the supervised warm start, and a
// verifier.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/random.h"

namespace tandem::trainer {

using Tokens = std::vector<std::int32_t>;

// Immutable after construction; the same on every rank.
class Task {
  public:
    virtual ~Task() = default;
    virtual std::string name() const = 0;
    virtual std::int64_t vocab_size() const = 0;
    virtual std::int32_t eos() const = 0;
    virtual std::int64_t longest_prompt() const = 0;  // tokens
    virtual std::int64_t longest_answer() const = 0;  // tokens, with EOS

    virtual std::int64_t size() const = 0;  // prompts, train and held out
    virtual std::int64_t train_size() const = 0;
    virtual std::int64_t held_out_size() const = 0;
    virtual Tokens train_prompt(std::int64_t index) const = 0;
    virtual Tokens held_out_prompt(std::int64_t index) const = 0;

    // What the teacher answers, EOS included; it may be wrong.
    virtual Tokens teach(std::span<const std::int32_t> prompt, Random& random) const = 0;
    // 0 … 1 for a completion, which may run past its first EOS.
    virtual double reward(std::span<const std::int32_t> prompt,
                          std::span<const std::int32_t> completion) const = 0;
    virtual std::string text(std::span<const std::int32_t> tokens) const = 0;  // for people
};

// Throws InvalidArgument for an unknown name.
std::unique_ptr<Task> make_task(const std::string& name, std::int64_t held_out, double teacher_noise);

// `count` prompts drawn from the train set with replacement; a pure function of the random stream.
std::vector<Tokens> draw_prompts(const Task& task, std::int64_t count, Random& random);

}  // namespace tandem::trainer
