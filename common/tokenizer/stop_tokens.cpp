#include "common/tokenizer/stop_tokens.h"

#include <algorithm>
#include <filesystem>

#include "common/error.h"
#include "common/log.h"
#include "common/tokenizer/json_field.h"

namespace tandem::tokenizer {
namespace {

constexpr const char* kEosKey = "eos_token_id";

class StopList {
  public:
    void add(std::int32_t id, const std::string& from) {
        const auto found =
            std::find_if(tokens_.begin(), tokens_.end(), [&](const StopToken& t) { return t.id == id; });
        if (found == tokens_.end()) {
            tokens_.push_back({id, from});
        } else {
            found->from += ", " + from;
        }
    }
    std::vector<StopToken> take() { return std::move(tokens_); }

  private:
    std::vector<StopToken> tokens_;
};

// decides: the file says how large the vocabulary is, and an id outside of it contradicts that.
void add_ids(StopList& list, const std::string& directory, const char* name, bool decides,
             std::int64_t vocab_size) {
    const std::string file = directory + "/" + name;
    if (!std::filesystem::exists(file)) return;
    const nlohmann::json json = read_json(file);
    if (!json.is_object()) throw ConfigError(file, "", "is not a JSON object");
    if (!json.contains(kEosKey) || json[kEosKey].is_null()) return;
    const nlohmann::json& said = json[kEosKey];
    for (const nlohmann::json& id : said.is_array() ? said : nlohmann::json::array({said})) {
        if (!id.is_number_integer())
            throw ConfigError(file, kEosKey,
                              fmt::format("{} is no token id: an id, a list of ids or null", id.dump()));
        const bool inside =
            id.is_number_unsigned() && id.get<std::uint64_t>() < static_cast<std::uint64_t>(vocab_size);
        if (inside) {
            list.add(id.get<std::int32_t>(), name);
            continue;
        }
        const std::string why = fmt::format("{} is no token of a vocabulary of {}", id.dump(), vocab_size);
        if (decides) throw ConfigError(file, kEosKey, why);
        log_warn("{}: {}: {}: it is left out of the stop tokens", file, kEosKey, why);
    }
}

// The token that the template writes directly after an assistant's message, if it is a special one.
std::optional<std::int32_t> end_of_turn(const Tokenizer& tokenizer) {
    const std::string words = "tandem-end-of-turn";
    std::string text;
    try {
        const std::vector<Message> turns{{"user", "question"}, {"assistant", words}};
        text = tokenizer.apply_chat_template(turns, false);
    } catch (const std::exception&) {
        return std::nullopt;  // no template that can be read, or none for questions and answers
    }
    const std::size_t at = text.rfind(words);
    if (at == std::string::npos) return std::nullopt;
    const std::size_t tail = text.find_first_not_of(" \n", at + words.size());
    if (tail == std::string::npos) return std::nullopt;
    const std::vector<std::int32_t> tokens = tokenizer.encode(text.substr(tail), false);
    if (tokens.empty() || !tokenizer.decode({tokens.front()}, true).empty()) return std::nullopt;
    return tokens.front();
}

}  // namespace

TokenizerEnds ends_of(const Tokenizer& tokenizer, const std::string& directory) {
    TokenizerEnds ends;
    if (tokenizer.has_chat_template()) ends.end_of_turn = end_of_turn(tokenizer);
    const auto eos = tokenizer.special_token("eos");
    if (eos) ends.eos = tokenizer.token_id(*eos);
    if (eos && !ends.eos) {
        log_warn(
            "{}/tokenizer_config.json: eos_token: \"{}\" is not in the vocabulary of tokenizer.json: it is "
            "left "
            "out of the stop tokens",
            directory, *eos);
    }
    return ends;
}

std::vector<StopToken> stop_tokens(const std::string& directory, const TokenizerEnds& ends,
                                   std::int64_t vocab_size) {
    StopList list;
    const auto add = [&](const std::optional<std::int32_t>& id, const char* from) {
        if (!id) return;
        if (*id < vocab_size) return list.add(*id, from);
        log_warn(
            "{}: {}: token {} is outside the model's vocabulary of {}: it is left out of the stop tokens",
            directory, from, *id, vocab_size);
    };
    add(ends.end_of_turn, "chat template");
    add(ends.eos, "tokenizer_config.json");
    add_ids(list, directory, "generation_config.json", false, vocab_size);
    add_ids(list, directory, "config.json", true, vocab_size);
    return list.take();
}

std::vector<std::int32_t> ids_of(const std::vector<StopToken>& tokens) {
    std::vector<std::int32_t> ids;
    for (const StopToken& token : tokens) ids.push_back(token.id);
    return ids;
}

std::string to_string(const std::vector<StopToken>& tokens,
                      const std::function<std::string(std::int32_t id)>& spelled) {
    std::string text;
    for (const StopToken& token : tokens) {
        const std::string word = spelled ? spelled(token.id) : "";
        text += fmt::format("{}{}{}{} ({})", text.empty() ? "" : ", ", token.id, word.empty() ? "" : " ",
                            word, token.from);
    }
    return text;
}

}  // namespace tandem::tokenizer
