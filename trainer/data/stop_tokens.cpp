#include "trainer/data/stop_tokens.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"

namespace tandem::trainer {
namespace {

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

// What the template writes directly behind an assistant's words, if it is a special token.
std::optional<std::int32_t> end_of_turn(const TextCodec& codec) {
    constexpr const char* kWords = "tandem-end-of-turn";
    std::string text;
    try {
        text = codec.render({{"user", "question"}, {"assistant", kWords}}, false);
    } catch (const std::exception&) {
        return std::nullopt;  // a template for something else than questions and answers
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
