// The rules that need no server: 1 for a right completion, 0 for any other.
#pragma once

#include "trainer/reward/pattern.h"
#include "trainer/reward/reward.h"

namespace tandem::trainer {

// Without white space at its ends, and every run of white space inside as one space.
std::string normalised(std::string_view text, bool ignore_case);

// The whole completion is the answer.
class ExactReward final : public Reward {
  public:
    explicit ExactReward(bool ignore_case) : ignore_case_(ignore_case) {}
    std::string complaint(const std::string& answer) const override;
    std::vector<double> scores(std::span<const AnsweredPrompt> answered) const override;

  private:
    bool ignore_case_;
};

// The number that the completion ends on is the number that the answer is (number.h).
class NumericReward final : public Reward {
  public:
    explicit NumericReward(double tolerance) : tolerance_(tolerance) {}
    std::string complaint(const std::string& answer) const override;
    std::vector<double> scores(std::span<const AnsweredPrompt> answered) const override;

  private:
    double tolerance_;
};

// With a capture group in the pattern, the group's last match is the answer; without one, the pattern matches
// somewhere.
class PatternReward final : public Reward {
  public:
    PatternReward(const std::string& pattern, bool ignore_case)
        : pattern_(pattern, ignore_case), ignore_case_(ignore_case) {}
    std::string complaint(const std::string& answer) const override;
    std::vector<double> scores(std::span<const AnsweredPrompt> answered) const override;

  private:
    Pattern pattern_;
    bool ignore_case_;
};

}  // namespace tandem::trainer
