#include "trainer/data/text_codec.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::trainer {
namespace {

class TokenizerCodec final : public TextCodec {
  public:
    explicit TokenizerCodec(const std::string& directory)
        : tokenizer_(tokenizer::Tokenizer::from_directory(directory)) {
        if (tokenizer_.has_chat_template()) tokenizer_.check_chat_template();
    }

    Tokens encode(const std::string& text, bool add_special_tokens) const override {
        return tokenizer_.encode(text, add_special_tokens);
    }
    std::string decode(std::span<const std::int32_t> tokens, bool skip_special_tokens) const override {
        return tokenizer_.decode({tokens.begin(), tokens.end()}, skip_special_tokens);
    }
    bool has_chat_template() const override { return tokenizer_.has_chat_template(); }
    std::string render(const std::vector<ChatTurn>& turns, bool add_generation_prompt) const override {
        std::vector<tokenizer::Message> messages;
        for (const ChatTurn& turn : turns) messages.push_back({turn.role, turn.content});
        return tokenizer_.apply_chat_template(messages, add_generation_prompt);
    }
    std::optional<std::int32_t> eos_token() const override {
        const auto eos = tokenizer_.special_token("eos");
        return eos ? tokenizer_.token_id(*eos) : std::nullopt;
    }
    std::int64_t vocab_size() const override { return static_cast<std::int64_t>(tokenizer_.vocab_size()); }

  private:
    tokenizer::Tokenizer tokenizer_;
};

using nlohmann::json;

// eos_token_id of a file: a number, a list of numbers, or not there.
std::vector<std::int32_t> eos_of(const std::string& file, std::int64_t vocab_size) {
    std::ifstream in(file, std::ios::binary);
    if (!in) return {};
    const json config = json::parse(in, nullptr, false);
    if (!config.is_object()) throw ConfigError(file, "", "is not a JSON object");
    const json eos = config.value("eos_token_id", json());
    if (eos.is_null()) return {};
    std::vector<std::int32_t> result;
    for (const json& id : eos.is_array() ? eos : json::array({eos})) {
        if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= vocab_size) {
            throw ConfigError(file, "eos_token_id",
                              fmt::format("{} is no token of a vocabulary of {}", id.dump(), vocab_size));
        }
        result.push_back(id.get<std::int32_t>());
    }
    return result;
}

// The token that the template writes directly after an assistant's message, if it is a special one.
std::optional<std::int32_t> end_of_turn(const TextCodec& codec) {
    constexpr const char* kWords = "tandem-end-of-turn";
    std::string text;
    try {
        text = codec.render({{"user", "question"}, {"assistant", kWords}}, false);
    } catch (const std::exception&) {
        return std::nullopt;  // a template that is not for questions and answers
    }
    const std::size_t at = text.rfind(kWords);
    if (at == std::string::npos) return std::nullopt;
    const std::size_t tail = text.find_first_not_of(" \n", at + std::string_view(kWords).size());
    if (tail == std::string::npos) return std::nullopt;
    const Tokens tokens = codec.encode(text.substr(tail), false);
    if (tokens.empty() || !codec.decode(std::span(tokens).first(1), true).empty()) return std::nullopt;
    return tokens.front();
}

}  // namespace

std::shared_ptr<const TextCodec> tokenizer_codec(const std::string& directory) {
    return std::make_shared<TokenizerCodec>(directory);
}

std::vector<std::int32_t> stop_tokens_of(const std::string& directory, const TextCodec& codec) {
    std::vector<std::int32_t> result;
    const auto add = [&](std::int32_t id) {
        if (std::find(result.begin(), result.end(), id) == result.end()) result.push_back(id);
    };
    if (codec.has_chat_template()) {
        if (const auto id = end_of_turn(codec)) add(*id);
    }
    if (const auto id = codec.eos_token()) add(*id);
    for (const char* file : {"generation_config.json", "config.json"}) {
        for (const std::int32_t id : eos_of(directory + "/" + file, codec.vocab_size())) add(id);
    }
    if (result.empty()) {
        throw ConfigError(directory, "eos_token_id",
                          "neither tokenizer_config.json, generation_config.json nor config.json names a "
                          "token that ends a text");
    }
    return result;
}

}  // namespace tandem::trainer
