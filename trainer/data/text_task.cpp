#include "trainer/data/text_task.h"

#include <algorithm>

#include "common/error.h"

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
    const auto lines = static_cast<std::int64_t>(lines_.size());
    if (!options_.held_out_file.empty()) {
        held_out_lines_.emplace(options_.held_out_file);
        held_out_size_ = std::min(options_.held_out, static_cast<std::int64_t>(held_out_lines_->size()));
        train_size_ = lines;
        return;
    }
    if (options_.held_out >= lines) {
        throw ConfigError(options_.prompts, "",
                          fmt::format("has {} lines; {} held out (data.held_out) leave none to train on",
                                      lines, options_.held_out));
    }
    held_out_size_ = options_.held_out;
    train_size_ = lines - held_out_size_;
}

TextTask::Line TextTask::line(PromptId id) const {
    if (id.split == Split::train) return {lines_, static_cast<std::size_t>(id.index)};
    if (held_out_lines_) return {*held_out_lines_, static_cast<std::size_t>(id.index)};
    return {lines_, static_cast<std::size_t>(train_size_ + id.index)};
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

Tokens TextTask::tokens_of(PromptId id, const TextProblem& problem) const {
    const Line at = line(id);
    const auto refuse = [&](const std::string& message) {
        throw ConfigError(at.file.place(at.index), options_.keys.prompt, message);
    };
    const bool chat = options_.chat || !problem.turns.empty();
    if (chat && !codec_->has_chat_template())
        refuse("is a list of messages, and the tokenizer has no chat template");
    Tokens tokens;
    try {
        tokens = codec_->encode(rendered(problem), !chat);  // the template wrote its special tokens itself
    } catch (const std::exception& error) {
        refuse(error.what());
    }
    if (tokens.empty()) refuse("has no tokens");
    return tokens;
}

Tokens TextTask::completion_of(const TextProblem& problem) const {
    Tokens tokens = codec_->encode(problem.completion, false);
    tokens.push_back(stop_tokens_.front());
    return tokens;
}

Tokens TextTask::train_prompt(std::int64_t index) const {
    const PromptId id{Split::train, index};
    return tokens_of(id, problem(id));
}

Tokens TextTask::held_out_prompt(std::int64_t index) const {
    const PromptId id{Split::held_out, index};
    return tokens_of(id, problem(id));
}

Tokens TextTask::teach(std::int64_t index, Random&) const {
    return completion_of(problem({Split::train, index}));
}

std::string TextTask::text(std::span<const std::int32_t> tokens) const {
    return codec_->decode(tokens, false);
}

std::string TextTask::expected(PromptId id) const {
    return problem(id).answer;
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
        const TextProblem asked = problem(attempt.prompt);
        answered.push_back({rendered(asked), codec_->decode(attempt.completion.first(length), true),
                            asked.answer, attempt.truncated});
    }
    return reward_->scores(answered);
}

// --- checks

void TextTask::check(PromptId id, Lengths& lengths) const {
    const Line at = line(id);
    const TextProblem asked = problem(id);
    const auto refuse = [&](const std::string& key, const std::string& message) {
        throw ConfigError(at.file.place(at.index), key, message);
    };
    if (const std::string complaint = reward_->complaint(asked.answer); !complaint.empty())
        refuse(options_.keys.answer, asked.answer.empty() ? "is missing or empty: " + complaint : complaint);
    const auto prompt = static_cast<std::int64_t>(tokens_of(id, asked).size());
    if (prompt > lengths.prompt) {
        lengths.prompt = prompt;
        lengths.place = at.file.place(at.index);
    }
    if (!options_.teaches || id.split != Split::train) return;
    if (asked.completion.empty())
        refuse(options_.keys.completion, "is missing; the warm start (sft.steps) needs one a line");
    lengths.answer = std::max(lengths.answer, static_cast<std::int64_t>(completion_of(asked).size()));
}

const TextTask::Lengths& TextTask::lengths() const {
    std::call_once(checked_, [&] {
        Lengths found;
        for (std::int64_t i = 0; i < train_size_; ++i) check({Split::train, i}, found);
        for (std::int64_t i = 0; i < held_out_size_; ++i) check({Split::held_out, i}, found);
        lengths_ = found;
    });
    return lengths_;
}

}  // namespace tandem::trainer
