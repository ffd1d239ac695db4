#include "trainer/data/text_task.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "common/log.h"

namespace tandem::trainer {
namespace {

using Split = PromptId::Split;

}  // namespace

TextTask::TextTask(TextTaskOptions options, std::shared_ptr<const TextCodec> codec,
                   std::vector<std::int32_t> stop_tokens, std::unique_ptr<Reward> reward)
    : options_(std::move(options)),
      codec_(std::move(codec)),
      stop_tokens_(std::move(stop_tokens)),
      reward_(std::move(reward)),
      lines_(options_.prompts) {
    if (options_.skip_bad_answers) taken_ = good_lines(lines_);
    const auto lines = static_cast<std::int64_t>(taken_ ? taken_->size() : lines_.size());
    if (!options_.held_out_file.empty()) {
        held_out_lines_.emplace(options_.held_out_file);
        if (options_.skip_bad_answers) held_out_taken_ = good_lines(*held_out_lines_);
        const std::size_t all = held_out_taken_ ? held_out_taken_->size() : held_out_lines_->size();
        held_out_size_ = std::min(options_.held_out, static_cast<std::int64_t>(all));
        train_size_ = lines;
        return;
    }
    if (options_.held_out >= lines) {
        throw ConfigError(
            options_.prompts, "",
            fmt::format("has {} lines{}; {} held out (data.held_out) leave none to train on", lines,
                        left_out_.empty() ? "" : " with an answer to judge against", options_.held_out));
    }
    held_out_size_ = options_.held_out;
    train_size_ = lines - held_out_size_;
}

// Those whose answer the reward can judge against. Reads them all.
std::vector<std::size_t> TextTask::good_lines(const JsonLines& lines) {
    std::vector<std::size_t> good;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::string reason = complaint({lines, i}, read_answer(lines, i, options_.keys));
        if (reason.empty()) {
            good.push_back(i);
        } else {
            left_out_.add(lines.place(i), std::move(reason));
        }
    }
    if (!good.empty()) return good;
    throw ConfigError(lines.place(0), options_.keys.answer,
                      fmt::format("{}; none of the {} lines can be used", left_out_.first(), lines.size()));
}

TextTask::Line TextTask::line(PromptId id) const {
    const auto at = [](const JsonLines& file, const auto& taken, std::int64_t place) -> Line {
        const auto index = static_cast<std::size_t>(place);
        return {file, taken ? taken->at(index) : index};
    };
    if (id.split == Split::train) return at(lines_, taken_, id.index);
    if (held_out_lines_) return at(*held_out_lines_, held_out_taken_, id.index);
    return at(lines_, taken_, train_size_ + id.index);
}

TextProblem TextTask::problem(PromptId id) const {
    const Line at = line(id);
    return read_problem(at.file, at.index, options_.keys);
}

// --- tokens

std::string TextTask::rendered(const TextProblem& problem) const {
    std::vector<ChatTurn> turns = problem.turns;
    if (turns.empty()) {
        if (!options_.chat) return problem.text;
        turns.push_back({"user", problem.text});
    }
    if (!options_.system.empty() && turns.front().role != "system")
        turns.insert(turns.begin(), {"system", options_.system});
    return codec_->render(turns, true);
}

Prompt TextTask::prompt_of(PromptId id, const TextProblem& problem) const {
    const Line at = line(id);
    const auto refuse = [&](const std::string& message) {
        throw ConfigError(at.file.place(at.index), options_.keys.prompt, message);
    };
    const bool chat = options_.chat || !problem.turns.empty();
    if (chat && !codec_->has_chat_template())
        refuse("is a list of messages, and the tokenizer has no chat template");
    Prompt prompt;
    prompt.answer = problem.answer;
    try {
        prompt.text = rendered(problem);
        prompt.tokens = codec_->encode(prompt.text, !chat);  // the template wrote its special tokens itself
    } catch (const std::exception& error) {
        refuse(error.what());
    }
    if (prompt.tokens.empty()) refuse("has no tokens");
    return prompt;
}

Tokens TextTask::completion_of(const TextProblem& problem) const {
    Tokens tokens = codec_->encode(problem.completion, false);
    tokens.push_back(stop_tokens_.front());
    return tokens;
}

Prompt TextTask::ask(PromptId id) const {
    return prompt_of(id, problem(id));
}

Tokens TextTask::train_prompt(std::int64_t index) const {
    return ask({Split::train, index}).tokens;
}

Tokens TextTask::held_out_prompt(std::int64_t index) const {
    return ask({Split::held_out, index}).tokens;
}

Tokens TextTask::teach(std::int64_t index, Random&) const {
    return completion_of(problem({Split::train, index}));
}

Lesson TextTask::lesson(std::int64_t index, Random&) const {
    const PromptId id{Split::train, index};
    const TextProblem asked = problem(id);
    return {prompt_of(id, asked).tokens, completion_of(asked)};
}

std::string TextTask::text(std::span<const std::int32_t> tokens) const {
    return codec_->decode(tokens, false);
}

std::string TextTask::place(PromptId id) const {
    const Line at = line(id);
    return at.file.place(at.index);
}

// --- rewards

std::vector<double> TextTask::rewards(std::span<const Attempt> attempts) const {
    std::vector<AnsweredPrompt> answered;
    for (const Attempt& attempt : attempts) {
        const auto end = std::find_first_of(attempt.completion.begin(), attempt.completion.end(),
                                            stop_tokens_.begin(), stop_tokens_.end());
        const auto length = static_cast<std::size_t>(end - attempt.completion.begin());
        answered.push_back({attempt.prompt.text, codec_->decode(attempt.completion.first(length), true),
                            attempt.prompt.answer, attempt.truncated});
    }
    return reward_->scores(answered);
}

// --- checks

// What is wrong with a line's answer; empty when the reward can judge against it.
std::string TextTask::complaint(const Line& at, const std::string& answer) const {
    const std::string reason = reward_->complaint(answer);
    if (reason.empty()) return "";
    if (!answer.empty()) return fmt::format("{}: {}", reason, in_quotes(answer));
    return why_absent(at.file, at.index, options_.keys.answer, "data.answer_key");
}

void TextTask::check(PromptId id, Counted& counted) const {
    const Line at = line(id);
    const TextProblem asked = problem(id);
    const std::string place = at.file.place(at.index);
    if (std::string reason = complaint(at, asked.answer); !reason.empty())
        counted.bad_answers.add(place, std::move(reason));
    check_template(id, asked, counted);
    Lengths& lengths = counted.lengths;
    const auto prompt = static_cast<std::int64_t>(prompt_of(id, asked).tokens.size());
    lengths.tokens.push_back(static_cast<std::int32_t>(prompt));
    if (prompt > lengths.prompt) {
        lengths.prompt = prompt;
        lengths.place = place;
    }
    if (!options_.teaches || id.split != Split::train) return;
    if (asked.completion.empty()) {
        throw ConfigError(place, options_.keys.completion,
                          why_absent(at.file, at.index, options_.keys.completion, "data.completion_key",
                                     "the warm start (sft.steps) needs one a line"));
    }
    lengths.answer = std::max(lengths.answer, static_cast<std::int64_t>(completion_of(asked).size()));
}

// A prompt with the template's own tokens would be rendered a second time.
void TextTask::check_template(PromptId id, const TextProblem& problem, Counted& counted) const {
    if (!options_.chat && problem.turns.empty()) return;
    std::string_view found = token_in(problem.text, counted.template_tokens);
    for (const ChatTurn& turn : problem.turns) {
        if (found.empty()) found = token_in(turn.content, counted.template_tokens);
    }
    if (found.empty()) return;
    const Line at = line(id);
    counted.templated.add(at.file.place(at.index), std::string(found));
}

void TextTask::report(const Counted& counted) const {
    if (const Findings& bad = counted.bad_answers; !bad.empty()) {
        throw ConfigError(bad.first_place(), options_.keys.answer,
                          fmt::format("{}{}\n{} of {} answers cannot be judged against; data.bad_answers = "
                                      "\"skip\" leaves such lines out",
                                      bad.first(), bad.lines(1), bad.count(), size()));
    }
    if (!left_out_.empty()) {
        log_warn(
            "{} lines are left out: their answers cannot be judged against (data.bad_answers = \"skip\"); "
            "{} are left. The first:{}",
            left_out_.count(), size(), left_out_.lines());
    }
    if (!counted.templated.empty()) {
        log_warn(
            "{} of {} prompts contain {} of the chat template, as if rendered already, and are rendered "
            "again: {}. data.chat = \"off\" takes texts as they are",
            counted.templated.count(), size(), counted.templated.first(), counted.templated.places());
    }
}

const TextTask::Lengths& TextTask::lengths() const {
    std::call_once(checked_, [&] {
        Counted counted;
        counted.template_tokens = template_tokens(*codec_);
        for (std::int64_t i = 0; i < train_size_; ++i) check({Split::train, i}, counted);
        for (std::int64_t i = 0; i < held_out_size_; ++i) check({Split::held_out, i}, counted);
        report(counted);
        lengths_ = std::move(counted.lengths);
    });
    return lengths_;
}

PromptId TextTask::id_of(std::size_t place) const {
    const auto index = static_cast<std::int64_t>(place);
    if (index < train_size_) return {Split::train, index};
    return {Split::held_out, index - train_size_};
}

Task::LongPrompts TextTask::prompts_longer_than(std::int64_t tokens) const {
    Findings found;
    const std::vector<std::int32_t>& all = lengths().tokens;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] <= tokens) continue;
        const Line at = line(id_of(i));
        found.add(at.file.place(at.index));
    }
    return {found.count(), found.places()};
}

}  // namespace tandem::trainer
