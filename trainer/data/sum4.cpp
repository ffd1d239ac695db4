#include "trainer/data/sum4.h"

#include <algorithm>
#include <utility>

#include "common/error.h"

namespace tandem::trainer {
namespace {

Tokens prompt_of(std::int64_t number) {  // its four decimal digits
    const auto digit = [&](std::int64_t place) { return static_cast<std::int32_t>(number / place % 10); };
    return {digit(1000), Sum4::kPlus, digit(100), Sum4::kPlus,
            digit(10),   Sum4::kPlus, digit(1),   Sum4::kEquals};
}

Tokens answer_of(std::int32_t sum) {
    if (sum < 10) return {sum, Sum4::kEos};
    return {sum / 10, sum % 10, Sum4::kEos};
}

std::int32_t sum_of(std::span<const std::int32_t> prompt) {
    return prompt[0] + prompt[2] + prompt[4] + prompt[6];
}

}  // namespace

Sum4::Sum4(std::int64_t held_out, double teacher_noise)
    : held_out_(held_out),
      teacher_noise_(teacher_noise),
      order_(Random(0, Purpose::hold_out).permutation(kPrompts)) {
    enforce(held_out >= 0 && held_out <= kPrompts, "sum4 has {} prompts; {} cannot be held out", kPrompts,
            held_out);
}

Tokens Sum4::train_prompt(std::int64_t index) const {
    return prompt_of(order_.at(static_cast<std::size_t>(held_out_ + index)));
}

Tokens Sum4::held_out_prompt(std::int64_t index) const {
    return prompt_of(order_.at(static_cast<std::size_t>(index)));
}

Prompt Sum4::ask(PromptId id) const {
    Tokens tokens = id.split == PromptId::Split::train ? train_prompt(id.index) : held_out_prompt(id.index);
    std::string right = text(answer_of(sum_of(tokens)));
    return {std::move(tokens), {}, std::move(right)};
}

Tokens Sum4::teach(std::span<const std::int32_t> prompt, Random& random) const {
    const std::int32_t sum = sum_of(prompt);
    const bool wrong = random.uniform() < teacher_noise_;
    return answer_of(wrong ? sum % 10 : sum);
}

Tokens Sum4::teach(std::int64_t index, Random& random) const {
    return teach(train_prompt(index), random);
}

std::vector<double> Sum4::rewards(std::span<const Attempt> attempts) const {
    std::vector<double> result;
    for (const Attempt& attempt : attempts)
        result.push_back(reward(attempt.prompt.tokens, attempt.completion));
    return result;
}

double Sum4::reward(std::span<const std::int32_t> prompt, std::span<const std::int32_t> completion) const {
    const Tokens right = answer_of(sum_of(prompt));
    return completion.size() >= right.size() && std::equal(right.begin(), right.end(), completion.begin())
               ? 1.0
               : 0.0;
}

std::string Sum4::text(std::span<const std::int32_t> tokens) const {
    std::string result;
    for (const std::int32_t token : tokens) {
        if (token >= 0 && token < 10) {
            result += static_cast<char>('0' + token);
        } else {
            result += token == kPlus ? "+" : token == kEquals ? "=" : token == kEos ? "." : "?";
        }
    }
    return result;
}

}  // namespace tandem::trainer
