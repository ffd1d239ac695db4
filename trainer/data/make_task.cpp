#include "trainer/data/make_task.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "common/error.h"
#include "trainer/data/sum4.h"
#include "trainer/data/text_codec.h"
#include "trainer/data/text_task.h"

namespace tandem::trainer {

namespace fs = std::filesystem;

namespace {

// Keys that only a text has. (Values are compared, not places: a run's own config.toml sets every key.)
void refuse_text_keys(const RunConfig& c, const config::Schema& s) {
    const RunConfig fresh;
    for (const auto& [key, set] : {std::pair("data.prompts", !c.data.prompts.empty()),
                                   std::pair("data.held_out_file", !c.data.held_out_file.empty()),
                                   std::pair("data.tokenizer", !c.data.tokenizer.empty()),
                                   std::pair("data.reward", c.data.reward != fresh.data.reward)}) {
        if (set) s.refuse(key, "is for the task text, but the task is sum4; give data.prompts");
    }
}

std::unique_ptr<Task> make_sum4(const RunConfig& c, const config::Schema& s) {
    if (c.data.held_out >= Sum4::kPrompts) {
        s.refuse("data.held_out", fmt::format("{} leaves none of the task's {} prompts to train on",
                                              c.data.held_out, Sum4::kPrompts));
    }
    return std::make_unique<Sum4>(c.data.held_out, c.data.teacher_noise);
}

std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

std::unique_ptr<Reward> reward_of(const RunConfig& c, const config::Schema& s) {
    RewardOptions options;
    options.rule = c.data.reward;
    options.ignore_case = c.data.reward_ignore_case;
    options.tolerance = c.data.reward_tolerance;
    options.pattern = c.data.reward_pattern;
    options.batch = c.data.reward_batch;
    options.connections = c.data.reward_connections;
    options.timeout = milliseconds(c.data.reward_timeout_s);
    options.deadline = milliseconds(c.data.reward_deadline_s);
    if (!c.data.reward_pattern.empty() && c.data.reward != "regex")
        s.refuse("data.reward_pattern", fmt::format("has no meaning with reward {}", c.data.reward));
    try {
        return make_reward(options);
    } catch (const InvalidArgument& error) {
        s.refuse(c.data.reward == "regex" ? "data.reward_pattern" : "data.reward", error.what());
    }
}

// The model's. (One that is too small for the tokenizer is refused later, by that reason.)
std::int64_t vocab_size(const RunConfig& c, const TextCodec& codec) {
    const std::int64_t of_model =
        c.model.path.empty() ? c.model.vocab_size : model::read_model_config(c.model.path).vocab_size;
    return std::max(of_model, codec.vocab_size());
}

std::unique_ptr<Task> make_text(const RunConfig& c, const config::Schema& s) {
    auto reward = reward_of(c, s);
    const std::string directory = tokenizer_directory(c);
    if (directory.empty())
        s.refuse("data.tokenizer", "is empty and so is model.path; text needs a tokenizer");
    const auto codec = tokenizer_codec(directory);

    TextTaskOptions options;
    options.prompts = c.data.prompts;
    options.held_out_file = c.data.held_out_file;
    options.held_out = c.data.held_out;
    options.keys = {c.data.prompt_key, c.data.answer_key, c.data.completion_key};
    options.chat = c.data.chat == "on" || (c.data.chat == "auto" && codec->has_chat_template());
    options.system = c.data.system;
    options.teaches = c.sft.steps > 0;
    options.skip_bad_answers = c.data.bad_answers == "skip";
    if (options.chat && !codec->has_chat_template())
        s.refuse("data.chat", fmt::format("is on, but the tokenizer of {} has no chat_template", directory));
    StopTokens stops = stop_tokens_of(generation_directory(c), *codec, vocab_size(c, *codec));
    options.stop_token_sources = std::move(stops.sources);
    return std::make_unique<TextTask>(std::move(options), codec, std::move(stops.ids), std::move(reward));
}

}  // namespace

std::string tokenizer_directory(const RunConfig& c) {
    return c.data.tokenizer.empty() ? c.model.path : c.data.tokenizer;
}

std::string generation_directory(const RunConfig& c) {
    const auto has = [&](const char* file) { return fs::exists(c.data.tokenizer + "/" + file); };
    const bool own = !c.data.tokenizer.empty() && (has("generation_config.json") || has("config.json"));
    return own || c.model.path.empty() ? tokenizer_directory(c) : c.model.path;
}

std::unique_ptr<Task> make_task(const RunConfig& c, const config::Schema& s) {
    const bool prompts = !c.data.prompts.empty();
    if (c.data.task == "sum4" || (c.data.task == "auto" && !prompts)) {
        refuse_text_keys(c, s);
        return make_sum4(c, s);
    }
    if (!prompts) s.refuse("data.prompts", "is empty; the task text needs a JSONL file");
    return make_text(c, s);
}

}  // namespace tandem::trainer
