// A task with a verifiable reward: prompts as token ids, a teacher for the supervised warm start, and a
// verifier. prompt_order.h chooses the prompts of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/random.h"

namespace tandem::trainer {

using Tokens = std::vector<std::int32_t>;

// Names a prompt of a task.
struct PromptId {
    enum class Split : std::uint8_t { train, held_out } split = Split::train;
    std::int64_t index = 0;
    friend bool operator==(const PromptId&, const PromptId&) = default;
};

// A prompt as a rollout asks it.
struct Prompt {
    Tokens tokens;
    std::string text;    // as rendered; empty where a task has tokens alone
    std::string answer;  // the right one; may be empty
};

// What the warm start imitates.
struct Lesson {
    Tokens prompt;
    Tokens answer;  // stop token included
};

// One completion to be judged. It may run past its first stop token.
struct Attempt {
    const Prompt& prompt;  // outlives the attempt
    std::span<const std::int32_t> completion;
    bool truncated = false;  // max_new_tokens ended it
};

// Immutable after construction; the same on every rank.
class Task {
  public:
    virtual ~Task() = default;
    virtual std::string name() const = 0;
    virtual std::int64_t vocab_size() const = 0;                   // token ids that it uses: 0 … this - 1
    virtual std::vector<std::int32_t> stop_tokens() const = 0;     // any of them ends a completion
    virtual std::string stop_token_sources() const { return {}; }  // which file names each; for people
    virtual std::int64_t longest_prompt() const = 0;               // tokens
    virtual std::string place_of_longest_prompt() const { return {}; }  // "FILE:LINE" where there is one
    // How many prompts are longer than so many tokens, and the first "FILE:LINE"s where there are some.
    struct LongPrompts {
        std::int64_t count = 0;
        std::string places;
    };
    virtual LongPrompts prompts_longer_than(std::int64_t /*tokens*/) const { return {}; }
    virtual std::int64_t longest_answer()
        const = 0;  // tokens of what the teacher answers, stop token included

    virtual std::int64_t size() const = 0;  // prompts, train and held out
    virtual std::int64_t train_size() const = 0;
    virtual std::int64_t held_out_size() const = 0;
    virtual Tokens train_prompt(std::int64_t index) const = 0;
    virtual Tokens held_out_prompt(std::int64_t index) const = 0;
    // All of a prompt that a rollout needs, made in one go: reading, rendering and tokenising it takes its
    // time.
    virtual Prompt ask(PromptId id) const = 0;
    // Each train prompt once an epoch, in an order of its own; false: drawn with replacement.
    virtual bool in_epochs() const = 0;

    // The teacher's answer to a train prompt, stop token included; it may be wrong.
    virtual Tokens teach(std::int64_t index, Random& random) const = 0;
    // A train prompt and what teach() answers to it, made in one go.
    virtual Lesson lesson(std::int64_t index, Random& random) const {
        return {train_prompt(index), teach(index, random)};
    }
    // A score each. Called on rank 0 only: it may ask a server.
    virtual std::vector<double> rewards(std::span<const Attempt> attempts) const = 0;
    virtual std::string text(std::span<const std::int32_t> tokens) const = 0;  // for people
    virtual std::string place(PromptId id) const;  // where its prompt comes from: "FILE:LINE", "prompt 3"
};

}  // namespace tandem::trainer
