#include "trainer/reward/rules.h"

#include <algorithm>
#include <functional>

#include "trainer/reward/number.h"

namespace tandem::trainer {
namespace {

bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

std::vector<double> judge(std::span<const AnsweredPrompt> answered,
                          const std::function<bool(const AnsweredPrompt&)>& right) {
    std::vector<double> result;
    for (const AnsweredPrompt& one : answered) result.push_back(right(one) ? 1.0 : 0.0);
    return result;
}

}  // namespace

std::string normalised(std::string_view text, bool ignore_case) {
    std::string result;
    for (const char c : text) {
        if (is_space(c)) {
            if (!result.empty() && result.back() != ' ') result += ' ';
        } else {
            result += ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        }
    }
    if (!result.empty() && result.back() == ' ') result.pop_back();
    return result;
}

std::string ExactReward::complaint(const std::string& answer) const {
    return normalised(answer, false).empty() ? "is empty; reward exact compares with it" : "";
}

std::vector<double> ExactReward::scores(std::span<const AnsweredPrompt> answered) const {
    return judge(answered, [&](const AnsweredPrompt& one) {
        return normalised(one.completion, ignore_case_) == normalised(one.answer, ignore_case_);
    });
}

std::string NumericReward::complaint(const std::string& answer) const {
    if (sole_number(answer)) return "";
    const bool digits = answer.find_first_of("0123456789") != std::string::npos;
    return digits ? "is not one number; reward numeric compares with one"
                  : "holds no number; reward numeric compares with one";
}

std::vector<double> NumericReward::scores(std::span<const AnsweredPrompt> answered) const {
    return judge(answered, [&](const AnsweredPrompt& one) {
        const auto right = sole_number(one.answer);
        const auto given = final_number(one.completion);
        return right && given && same_number(*given, *right, tolerance_);
    });
}

std::string PatternReward::complaint(const std::string& answer) const {
    return pattern_.captures() && normalised(answer, false).empty()
               ? "is empty; reward regex compares what the pattern's group captures with it"
               : "";
}

std::vector<double> PatternReward::scores(std::span<const AnsweredPrompt> answered) const {
    return judge(answered, [&](const AnsweredPrompt& one) {
        const auto found = pattern_.last_match(one.completion);
        if (!found || !pattern_.captures()) return found.has_value();
        return normalised(*found, ignore_case_) == normalised(one.answer, ignore_case_);
    });
}

}  // namespace tandem::trainer
