// The task "text": prompts from a JSONL file, completions judged as text. A line becomes tokens when it is
// asked for; the file's index is all that is kept. Lines are checked by longest_prompt() and
// longest_answer(), which go through all of them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "trainer/data/json_lines.h"
#include "trainer/data/task.h"
#include "trainer/data/text_codec.h"
#include "trainer/data/text_problem.h"
#include "trainer/reward/reward.h"

namespace tandem::trainer {

struct TextTaskOptions {
    std::string prompts;         // JSONL file
    std::string held_out_file;   // JSONL file; empty: the last `held_out` lines of `prompts`
    std::int64_t held_out = 64;  // of held_out_file at most that many, from its start
    TextKeys keys;
    bool chat = true;      // a prompt that is one string is rendered as a user's message
    std::string system;    // system message of every conversation that has none; empty: none
    bool teaches = false;  // train lines need a completion
    std::string stop_token_sources;
};

class TextTask final : public Task {
  public:
    // stop_tokens: not empty; the first ends a taught completion. Throws ConfigError about the files.
    TextTask(TextTaskOptions options, std::shared_ptr<const TextCodec> codec,
             std::vector<std::int32_t> stop_tokens, std::unique_ptr<Reward> reward);

    std::string name() const override { return "text"; }
    std::int64_t vocab_size() const override { return codec_->vocab_size(); }
    std::vector<std::int32_t> stop_tokens() const override { return stop_tokens_; }
    std::string stop_token_sources() const override { return options_.stop_token_sources; }
    // Both throw ConfigError "FILE:LINE: …" for the first line that cannot be used.
    std::int64_t longest_prompt() const override { return lengths().prompt; }
    std::int64_t longest_answer() const override { return lengths().answer; }
    std::string place_of_longest_prompt() const override { return lengths().place; }

    std::int64_t size() const override { return train_size() + held_out_size(); }
    std::int64_t train_size() const override { return train_size_; }
    std::int64_t held_out_size() const override { return held_out_size_; }
    Tokens train_prompt(std::int64_t index) const override;
    Tokens held_out_prompt(std::int64_t index) const override;
    bool in_epochs() const override { return true; }
    // The line's completion.
    Tokens teach(std::int64_t index, Random& random) const override;
    std::vector<double> rewards(std::span<const Attempt> attempts) const override;
    std::string text(std::span<const std::int32_t> tokens) const override;
    std::string expected(PromptId id) const override;

  private:
    struct Line {
        const JsonLines& file;
        std::size_t index;
    };
    struct Lengths {
        std::int64_t prompt = 0;
        std::int64_t answer = 0;
        std::string place;  // of the longest prompt
    };
    Line line(PromptId id) const;
    TextProblem problem(PromptId id) const;
    std::string rendered(const TextProblem& problem) const;
    Tokens tokens_of(PromptId id, const TextProblem& problem) const;
    Tokens completion_of(const TextProblem& problem) const;
    void check(PromptId id, Lengths& lengths) const;
    const Lengths& lengths() const;

    TextTaskOptions options_;
    std::shared_ptr<const TextCodec> codec_;
    std::vector<std::int32_t> stop_tokens_;
    std::unique_ptr<Reward> reward_;
    JsonLines lines_;
    std::optional<JsonLines> held_out_lines_;
    std::int64_t train_size_ = 0;
    std::int64_t held_out_size_ = 0;
    mutable std::once_flag checked_;
    mutable Lengths lengths_;  // after checked_
};

}  // namespace tandem::trainer
