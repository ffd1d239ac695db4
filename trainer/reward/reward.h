// Rewards of text completions: exact, numeric and regular-expression rules, or a server. See
// ../data/README.md for what each rule does and for the server's contract.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tandem::trainer {

// The input of a rule. The completion has no stop token and no special tokens.
struct AnsweredPrompt {
    std::string prompt;  // as rendered: with the chat template's words
    std::string completion;
    std::string answer;  // of the prompt's line; may be empty
    bool truncated = false;
};

class Reward {
  public:
    virtual ~Reward() = default;
    // Why this answer cannot be judged against, or nothing. Asked of every line before anything starts.
    virtual std::string complaint(const std::string& answer) const = 0;
    // A score each, in order; NaN or infinite where a server says so. Blocking.
    virtual std::vector<double> scores(std::span<const AnsweredPrompt> answered) const = 0;
};

struct RewardOptions {
    std::string rule = "exact";  // "exact", "numeric", "regex", or "http://host:port/path"
    bool ignore_case = false;    // exact, regex: of ASCII letters
    double tolerance = 1e-6;     // numeric: of decimals and roots, see same_number() in number.h
    std::string pattern;         // regex
    // Server: samples per request, requests at once, timeout of one of them and deadline of a call.
    std::int64_t batch = 64;
    std::int64_t connections = 4;
    std::chrono::milliseconds timeout{10'000};
    std::chrono::milliseconds deadline{30'000};
};

// Throws InvalidArgument: an unknown rule, a pattern that does not compile, a malformed URL.
std::unique_ptr<Reward> make_reward(const RewardOptions& options);

}  // namespace tandem::trainer
