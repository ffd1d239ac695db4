// The task "text": prompts from a JSONL file, completions judged as text. A line becomes tokens when it is
// asked for; the file's index is all that is kept. Lines are checked by longest_prompt() and
// longest_answer(), which go through all of them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "trainer/data/json_lines.h"
#include "trainer/data/prompt_checks.h"
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
    // Leave out lines whose answer the reward cannot judge against; false: they are refused.
    bool skip_bad_answers = false;
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
    // All throw ConfigError "FILE:LINE: …" for the first line that cannot be used, where answers are to blame
    // with how many of them. The first call logs what was left out, and prompts that look like rendered ones.
    std::int64_t longest_prompt() const override { return lengths().prompt; }
    std::int64_t longest_answer() const override { return lengths().answer; }
    std::string place_of_longest_prompt() const override { return lengths().place; }
    LongPrompts prompts_longer_than(std::int64_t tokens) const override;

    std::int64_t size() const override { return train_size() + held_out_size(); }
    std::int64_t train_size() const override { return train_size_; }
    std::int64_t held_out_size() const override { return held_out_size_; }
    Tokens train_prompt(std::int64_t index) const override;
    Tokens held_out_prompt(std::int64_t index) const override;
    Prompt ask(PromptId id) const override;
    bool in_epochs() const override { return true; }
    // The line's completion.
    Tokens teach(std::int64_t index, Random& random) const override;
    Lesson lesson(std::int64_t index, Random& random) const override;
    std::vector<double> rewards(std::span<const Attempt> attempts) const override;
    std::string text(std::span<const std::int32_t> tokens) const override;
    std::string place(PromptId id) const override;

  private:
    struct Line {
        const JsonLines& file;
        std::size_t index;
    };
    struct Lengths {
        std::int64_t prompt = 0;
        std::int64_t answer = 0;
        std::string place;                 // of the longest prompt
        std::vector<std::int32_t> tokens;  // of each prompt: of the train set, then of the held-out one
    };
    // What the checks count.
    struct Counted {
        Lengths lengths;
        Findings bad_answers;
        Findings templated;  // prompts that hold a template's tokens
        std::vector<std::string> template_tokens;
    };
    std::vector<std::size_t> good_lines(const JsonLines& lines);
    std::string complaint(const Line& at, const std::string& answer) const;
    PromptId id_of(std::size_t place) const;  // by the order of Lengths::tokens
    Line line(PromptId id) const;
    TextProblem problem(PromptId id) const;
    std::string rendered(const TextProblem& problem) const;
    Prompt prompt_of(PromptId id, const TextProblem& problem) const;
    Tokens completion_of(const TextProblem& problem) const;
    void check(PromptId id, Counted& counted) const;
    void check_template(PromptId id, const TextProblem& problem, Counted& counted) const;
    void report(const Counted& counted) const;
    const Lengths& lengths() const;

    TextTaskOptions options_;
    std::shared_ptr<const TextCodec> codec_;
    std::vector<std::int32_t> stop_tokens_;
    std::unique_ptr<Reward> reward_;
    JsonLines lines_;
    std::optional<JsonLines> held_out_lines_;
    // Lines that are taken, where some are left out.
    std::optional<std::vector<std::size_t>> taken_, held_out_taken_;
    Findings left_out_;
    std::int64_t train_size_ = 0;
    std::int64_t held_out_size_ = 0;
    mutable std::once_flag checked_;
    mutable Lengths lengths_;  // after checked_
};

}  // namespace tandem::trainer
