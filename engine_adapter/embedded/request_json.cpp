#include "engine_adapter/embedded/request_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/tokenizer/tokenizer.h"
#include "engine_adapter/embedded/sampling_json.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostSamples = 65536;  // of one request
constexpr std::size_t kMostValues = std::size_t{4}
                                    << 20;  // of one body; each takes 16 bytes and more once parsed
constexpr std::size_t kMostStopIds = std::size_t{1} << 20;  // of all prompts of a request
constexpr std::size_t kLongestId = 256;                     // bytes
constexpr std::size_t kBytesAToken = 32;  // of text: longer than the context could hold by far
constexpr int kDeepest = 32;

// The value of a key, or null.
const json& field(const json& body, const char* key) {
    static const json kNull;
    const auto found = body.find(key);
    return found == body.end() ? kNull : *found;
}

std::vector<std::int32_t> parse_tokens(const json& list, const RequestLimits& limits) {
    enforce(list.is_array(), "input_ids must be a list of token ids, or a list of such lists");
    enforce(!list.empty(), "input_ids is empty: a prompt needs at least one token");
    std::vector<std::int32_t> tokens;
    tokens.reserve(list.size());
    for (const json& id : list) {
        enforce(id.is_number_integer(), "input_ids must hold integers, found {}", id.dump());
        const bool inside = (id.is_number_unsigned() || id.get<std::int64_t>() >= 0) &&
                            id.get<std::uint64_t>() < static_cast<std::uint64_t>(limits.vocab_size);
        enforce(inside, "token id {} is outside the vocabulary of {}", id.dump(), limits.vocab_size);
        tokens.push_back(id.get<std::int32_t>());
    }
    return tokens;
}

// The tokens of a prompt given as text, with the special tokens that the tokenizer adds.
std::vector<std::int32_t> parse_text(const json& text, const RequestLimits& limits) {
    enforce(text.is_string(), "text must be a string or a list of strings");
    const std::string& bytes = text.get_ref<const std::string&>();
    enforce(bytes.size() <= static_cast<std::size_t>(limits.context_length) * kBytesAToken,
            "a prompt of {} bytes is longer than the model's context of {} tokens", bytes.size(),
            limits.context_length);
    std::vector<std::int32_t> tokens = limits.tokenizer->encode(bytes, true);
    enforce(!tokens.empty(), "text is empty: a prompt needs at least one token");
    for (const std::int32_t id : tokens) {
        enforce(id < limits.vocab_size, "the tokenizer gives token id {}, the model's vocabulary ends at {}",
                id, limits.vocab_size);
    }
    return tokens;
}

void check_fields(const json& body, const RequestLimits& limits) {
    const auto asks = [&](const char* key) {
        const json& value = field(body, key);
        return !value.is_null() && value != false && value != 0 && value != json::array();
    };
    enforce(!asks("text") || !asks("input_ids") || limits.tokenizer == nullptr,
            "text and input_ids name the prompt twice: send one of them");
    if (asks("text") && !asks("input_ids") && limits.tokenizer == nullptr) {
        throw BadInput("this model has no tokenizer files: send input_ids instead of text");
    }
    enforce(!asks("stream"), "stream = true is not supported");
    for (const char* key :
         {"input_embeds", "image_data", "audio_data", "video_data", "lora_path", "session_params",
          "top_logprobs_num", "token_ids_logprob", "return_hidden_states", "custom_logit_processor"}) {
        enforce(!asks(key), "{} is not supported by this engine", key);
    }
    if (const json& start = field(body, "logprob_start_len"); !start.is_null()) {
        enforce(start == -1 || start == json::array(),
                "logprob_start_len: log-probs of the prompt are not supported");
    }
}

bool parse_return_logprob(const json& body) {
    const json& value = field(body, "return_logprob");
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_null()) return false;
    const bool list = value.is_array() &&
                      std::all_of(value.begin(), value.end(), [](const json& v) { return v.is_boolean(); });
    enforce(list, "return_logprob must be true or false");
    return std::any_of(value.begin(), value.end(), [](const json& v) { return v.get<bool>(); });
}

const std::string& id_of(const json& rid) {
    enforce(rid.is_string(), "rid must be a string or a list of strings");
    const std::string& id = rid.get_ref<const std::string&>();
    enforce(id.size() <= kLongestId, "rid has {} bytes, more than {}", id.size(), kLongestId);
    return id;
}

// The id of the request and of each of its prompts.
void assign_ids(const json& body, GenerateRequest& request, std::uint64_t request_number) {
    const json& rid = field(body, "rid");
    if (rid.is_array()) {
        enforce(rid.size() == request.prompts.size(), "rid lists {} ids for {} prompts", rid.size(),
                request.prompts.size());
        for (std::size_t i = 0; i < rid.size(); ++i) {
            request.prompts[i].id = id_of(rid[i]);
        }
        request.id = request.prompts.front().id;
        return;
    }
    request.id = rid.is_null() ? fmt::format("tandem-{}", request_number) : id_of(rid);
    for (std::size_t i = 0; i < request.prompts.size(); ++i) {
        request.prompts[i].id = request.as_list ? fmt::format("{}-{}", request.id, i) : request.id;
    }
}

void check_lengths(Prompt& prompt, bool has_max_new_tokens, const RequestLimits& limits) {
    const auto length = static_cast<std::int64_t>(prompt.tokens.size());
    enforce(length < limits.context_length,
            "the prompt has {} tokens, the model's context holds {} with the answer", length,
            limits.context_length);
    if (!has_max_new_tokens) {
        const std::int64_t room = std::min(limits.context_length, limits.kv_tokens) - length;
        prompt.params.max_new_tokens = std::clamp<std::int64_t>(room, 1, prompt.params.max_new_tokens);
    }
    const std::int64_t total = length + prompt.params.max_new_tokens;
    enforce(total <= limits.context_length,
            "{} prompt tokens and {} new ones are more than the model's context of {}", length,
            prompt.params.max_new_tokens, limits.context_length);
    enforce(total <= limits.kv_tokens,
            "{} prompt tokens and {} new ones are more than the cache of {} (--kv-tokens)", length,
            prompt.params.max_new_tokens, limits.kv_tokens);
}

// What a text takes once it is parsed. The JSON library copies and prints recursively, so depth costs stack.
struct Extent {
    int depth = 0;           // of brackets and braces outside strings
    std::size_t values = 0;  // at least as many as it has
};
Extent extent_of(const std::string& text) {
    int depth = 0, deepest = 0;
    std::size_t values = 1;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            deepest = std::max(deepest, ++depth);
            ++values;
        } else if (c == ',') {
            ++values;
        } else if (c == ']' || c == '}') {
            --depth;
        }
    }
    return {deepest, values};
}

json finish_json(const SampleOutput& sample) {
    switch (sample.finish) {
        case Finish::stop:
            return {{"type", "stop"}, {"matched", sample.matched}};
        case Finish::length:
            return {{"type", "length"}, {"length", sample.tokens.size()}};
        case Finish::abort:
            break;
    }
    return {{"type", "abort"}, {"message", "aborted"}};
}

std::string text_of(const SampleOutput& sample, const Prompt& prompt, const tokenizer::Tokenizer* tokenizer) {
    if (tokenizer == nullptr) return "";
    std::vector<std::int32_t> tokens = sample.tokens;
    if (sample.finish == Finish::stop && !tokens.empty() && tokens.back() == sample.matched)
        tokens.pop_back();
    return tokenizer->decode(tokens, prompt.skip_special_tokens);
}

json sample_json(const GenerateRequest& request, const SampleOutput& sample, double latency_seconds,
                 const tokenizer::Tokenizer* tokenizer) {
    const Prompt& prompt = request.prompts[sample.prompt];
    json meta = {{"id", prompt.id},
                 {"finish_reason", finish_json(sample)},
                 {"prompt_tokens", prompt.tokens.size()},
                 {"completion_tokens", sample.tokens.size()},
                 {"cached_tokens", 0},
                 {"weight_version", std::to_string(sample.version)},
                 {"e2e_latency", latency_seconds}};
    if (request.return_logprob) {
        json& logprobs = meta["output_token_logprobs"] = json::array();
        for (std::size_t i = 0; i < sample.logprobs.size(); ++i) {
            logprobs.push_back({sample.logprobs[i], sample.tokens[i], nullptr});
        }
    }
    return {{"text", text_of(sample, prompt, tokenizer)},
            {"output_ids", sample.tokens},
            {"meta_info", std::move(meta)}};
}

}  // namespace

json parse_body(const std::string& body) {
    if (body.empty()) return json::object();
    const Extent extent = extent_of(body);
    enforce(extent.depth <= kDeepest, "the body is nested deeper than {} levels", kDeepest);
    enforce(extent.values <= kMostValues, "the body holds more than {} values", kMostValues);
    json parsed = json::parse(body, nullptr, false);
    enforce(!parsed.is_discarded(), "the body is not valid JSON");
    enforce(parsed.is_object(), "the body must be a JSON object");
    return parsed;
}

GenerateRequest parse_generate(const std::string& text, const RequestLimits& limits,
                               std::uint64_t request_number) {
    const json body = parse_body(text);
    check_fields(body, limits);
    const json &ids = field(body, "input_ids"), &text_prompts = field(body, "text");
    const bool as_text = ids.is_null() && !text_prompts.is_null() && limits.tokenizer != nullptr;
    if (!as_text) {
        enforce(ids.is_array(), "input_ids is missing: a list of token ids, or a list of such lists");
        enforce(!ids.empty(), "input_ids is empty: a prompt needs at least one token");
    }
    enforce(!as_text || !text_prompts.is_array() || !text_prompts.empty(), "text is an empty list");

    GenerateRequest request;
    request.as_list = as_text ? text_prompts.is_array() : ids[0].is_array();
    request.return_logprob = parse_return_logprob(body);
    const json& prompts = as_text ? text_prompts : ids;
    const auto count = request.as_list ? prompts.size() : std::size_t{1};
    const json& params = field(body, "sampling_params");
    const bool own_params = params.is_array();
    enforce(!own_params || params.size() == count, "sampling_params lists {} objects for {} prompts",
            params.size(), count);

    const auto sampling_of = [&](const json& object) {
        return parse_sampling(object.is_null() ? json::object() : object, limits.vocab_size);
    };
    ParsedSampling shared;
    if (!own_params) shared = sampling_of(params);
    std::uint64_t next_stream = 0;
    std::size_t stop_ids = 0;
    for (std::size_t i = 0; i < count; ++i) {
        ParsedSampling sampling = own_params ? sampling_of(params[i]) : shared;
        stop_ids += sampling.params.stop_token_ids.size();
        enforce(stop_ids <= kMostStopIds, "more than {} stop_token_ids over all prompts", kMostStopIds);
        Prompt prompt;
        const json& one = request.as_list ? prompts[i] : prompts;
        prompt.tokens = as_text ? parse_text(one, limits) : parse_tokens(one, limits);
        prompt.params = std::move(sampling.params);
        prompt.skip_special_tokens = sampling.skip_special_tokens;
        const bool explicit_seed = own_params && prompt.params.seed.has_value();
        prompt.first_stream = explicit_seed ? 0 : next_stream;
        next_stream += static_cast<std::uint64_t>(prompt.params.n);
        enforce(next_stream <= static_cast<std::uint64_t>(kMostSamples),
                "more than {} samples in one request", kMostSamples);
        check_lengths(prompt, sampling.has_max_new_tokens, limits);
        request.prompts.push_back(std::move(prompt));
    }
    assign_ids(body, request, request_number);
    return request;
}

// Sample by sample: as one JSON value a large answer would take ten times its text.
std::string generate_answer(const GenerateRequest& request, const GenerateResult& result,
                            const tokenizer::Tokenizer* tokenizer) {
    const bool single = !request.as_list && result.samples.size() == 1;
    std::string text = single ? "" : "[";
    for (const SampleOutput& sample : result.samples) {
        if (&sample != &result.samples.front()) text += ',';
        text += sample_json(request, sample, result.latency_seconds, tokenizer).dump();
    }
    return single ? text : text + "]";
}

}  // namespace tandem::engine
