#include "engine_adapter/embedded/sampling_json.h"

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "common/error.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostSamplesOfPrompt = 65536;
constexpr std::size_t kMostStopIdsOfPrompt = 1024;

std::int64_t integer(const json& value, const std::string& key, std::int64_t least, std::int64_t most) {
    enforce(value.is_number_integer(), "sampling_params.{} must be an integer", key);
    const bool fits =
        !value.is_number_unsigned() || value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    enforce(fits && value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most,
            "sampling_params.{} must be from {} to {}, is {}", key, least, most, value.dump());
    return value.get<std::int64_t>();
}

float number(const json& value, const std::string& key) {
    enforce(value.is_number(), "sampling_params.{} must be a number", key);
    return value.get<float>();
}

bool boolean(const json& value, const std::string& key) {
    enforce(value.is_boolean(), "sampling_params.{} must be true or false", key);
    return value.get<bool>();
}

std::uint64_t seed_of(const json& value, const std::string& key) {
    enforce(value.is_number_integer(), "sampling_params.{} must be an integer", key);
    return value.is_number_unsigned() ? value.get<std::uint64_t>()
                                      : static_cast<std::uint64_t>(value.get<std::int64_t>());
}

std::vector<std::int32_t> stop_ids(const json& value, std::int64_t vocab_size) {
    enforce(value.is_array(), "sampling_params.stop_token_ids must be a list of token ids");
    enforce(value.size() <= kMostStopIdsOfPrompt, "sampling_params.stop_token_ids lists {} ids, more than {}",
            value.size(), kMostStopIdsOfPrompt);
    std::vector<std::int32_t> ids;
    for (const json& id : value)
        ids.push_back(static_cast<std::int32_t>(integer(id, "stop_token_ids", 0, vocab_size - 1)));
    return ids;
}

using Setter = std::function<void(ParsedSampling&, const json&, std::int64_t vocab_size)>;

const std::map<std::string, Setter>& setters() {
    static const std::map<std::string, Setter> kSetters = {
        {"temperature",
         [](ParsedSampling& out, const json& value, std::int64_t) {
             out.params.temperature = number(value, "temperature");
             enforce(out.params.temperature >= 0 && std::isfinite(out.params.temperature),
                     "sampling_params.temperature must be 0 (greedy) or positive, is {}", value.dump());
         }},
        {"top_k",
         [](ParsedSampling& out, const json& value, std::int64_t) {
             const std::int64_t k = integer(value, "top_k", -1, std::int64_t{1} << 30);
             enforce(k != 0, "sampling_params.top_k must be -1 (off) or at least 1");
             out.params.top_k = static_cast<std::int32_t>(k);
         }},
        {"top_p",
         [](ParsedSampling& out, const json& value, std::int64_t) {
             out.params.top_p = number(value, "top_p");
             enforce(out.params.top_p > 0 && out.params.top_p <= 1,
                     "sampling_params.top_p must be in (0, 1], is {}", value.dump());
         }},
        {"min_p",
         [](ParsedSampling& out, const json& value, std::int64_t) {
             out.params.min_p = number(value, "min_p");
             enforce(out.params.min_p >= 0 && out.params.min_p <= 1,
                     "sampling_params.min_p must be in [0, 1], is {}", value.dump());
         }},
        {"max_new_tokens",
         [](ParsedSampling& out, const json& value, std::int64_t) {
             out.params.max_new_tokens = integer(value, "max_new_tokens", 0, std::int64_t{1} << 30);
             out.has_max_new_tokens = true;
         }},
        {"n", [](ParsedSampling& out, const json& value,
                 std::int64_t) { out.params.n = integer(value, "n", 1, kMostSamplesOfPrompt); }},
        {"seed", [](ParsedSampling& out, const json& value,
                    std::int64_t) { out.params.seed = seed_of(value, "seed"); }},
        {"sampling_seed", [](ParsedSampling& out, const json& value,
                             std::int64_t) { out.params.seed = seed_of(value, "sampling_seed"); }},
        {"stop_token_ids", [](ParsedSampling& out, const json& value,
                              std::int64_t vocab) { out.params.stop_token_ids = stop_ids(value, vocab); }},
        {"ignore_eos", [](ParsedSampling& out, const json& value,
                          std::int64_t) { out.params.ignore_eos = boolean(value, "ignore_eos"); }},
        {"skip_special_tokens",
         [](ParsedSampling& out, const json& value, std::int64_t) {
             out.skip_special_tokens = boolean(value, "skip_special_tokens");
         }},
        {"no_stop_trim", [](ParsedSampling& out, const json& value,
                            std::int64_t) { out.no_stop_trim = boolean(value, "no_stop_trim"); }},
        // SGLang hands it to the tokenizer, and fast tokenizers, of which this one is, join either way alike.
        {"spaces_between_special_tokens",
         [](ParsedSampling&, const json& value, std::int64_t) {
             boolean(value, "spaces_between_special_tokens");
         }},
        // Of answers that come in pieces, and here they come whole.
        {"stream_interval",
         [](ParsedSampling&, const json& value, std::int64_t) {
             integer(value, "stream_interval", 1, std::int64_t{1} << 30);
         }},
    };
    return kSetters;
}

// SGLang's keys that change nothing at these values and are refused at any other.
const std::map<std::string, json>& neutral_values() {
    static const std::map<std::string, json> kNeutral = {{"frequency_penalty", 0},
                                                         {"presence_penalty", 0},
                                                         {"repetition_penalty", 1},
                                                         {"min_new_tokens", 0},
                                                         {"stop", json::array()},
                                                         {"stop_regex", json::array()},
                                                         {"logit_bias", json::object()},
                                                         {"json_schema", nullptr},
                                                         {"regex", nullptr},
                                                         {"ebnf", nullptr},
                                                         {"structural_tag", nullptr},
                                                         {"custom_params", nullptr}};
    return kNeutral;
}

}  // namespace

ParsedSampling parse_sampling(const json& object, std::int64_t vocab_size) {
    enforce(object.is_object(), "sampling_params must be an object");
    ParsedSampling result;
    for (const auto& [key, value] : object.items()) {
        if (value.is_null()) continue;
        if (const auto setter = setters().find(key); setter != setters().end()) {
            setter->second(result, value, vocab_size);
            continue;
        }
        const auto neutral = neutral_values().find(key);
        if (neutral == neutral_values().end()) {
            std::string known;
            for (const auto& [name, unused] : setters()) known += (known.empty() ? "" : ", ") + name;
            throw BadInput("sampling_params." + key + " is not known; known: " + known);
        }
        enforce(value == neutral->second, "sampling_params.{} = {} is not supported by this engine", key,
                value.dump());
    }
    return result;
}

}  // namespace tandem::engine
