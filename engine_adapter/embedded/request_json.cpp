#include "engine_adapter/embedded/request_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "common/error.h"
#include "common/json_text.h"
#include "common/tokenizer/tokenizer.h"
#include "engine_adapter/embedded/body_json.h"
#include "engine_adapter/embedded/sampling_json.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostSamples = 65536;                // of one request
constexpr std::size_t kMostStopIds = std::size_t{1} << 20;  // of all prompts of a request
constexpr std::size_t kLongestId = 256;                     // bytes
constexpr std::size_t kBytesAToken = 32;  // of text: longer than the context could hold by far

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

bool is_given(const json& value) {
    return !value.is_null() && value != json::array();
}

// A key is read here, says nothing of the answer (who asks, how it is routed and logged), or asks for nothing.
void check_fields(const json& body, const RequestLimits& limits) {
    check_keys(body, {"text", "input_ids", "sampling_params", "rid", "return_logprob", "logprob_start_len",
                      "return_text_in_logprobs", "return_prompt_token_ids",
                      // nothing of the answer
                      "model", "session_id", "conversation_id", "routing_key", "routed_dp_rank",
                      "data_parallel_rank", "disagg_prefill_dp_rank", "http_worker_ipc", "extra_key",
                      "cache_salt", "kv_hints", "log_metrics", "no_logs", "custom_labels",
                      "external_trace_header", "received_time"});
    const json &text = field(body, "text"), &ids = field(body, "input_ids");
    enforce(!is_given(text) || !is_given(ids), "text and input_ids name the prompt twice: send one of them");
    if (is_given(text) && limits.tokenizer == nullptr)
        throw BadInput(limits.no_tokenizer + ": send input_ids instead of text");
    if (const json& start = field(body, "logprob_start_len"); !start.is_null()) {
        const bool none =
            start == -1 || (start.is_array() && std::all_of(start.begin(), start.end(),
                                                            [](const json& one) { return one == -1; }));
        enforce(none, "logprob_start_len: log-probs of the prompt are not supported");
    }
}

bool parse_flag(const json& body, const char* key) {
    const json& value = field(body, key);
    enforce(value.is_null() || value.is_boolean(), "{} must be true or false", key);
    return value.is_boolean() && value.get<bool>();
}

// For all prompts, or a list of one for each.
void parse_return_logprob(const json& body, GenerateRequest& request) {
    const json& value = field(body, "return_logprob");
    if (!value.is_array()) {
        request.return_logprob = parse_flag(body, "return_logprob");
        for (Prompt& prompt : request.prompts) prompt.return_logprob = request.return_logprob;
        return;
    }
    enforce(value.size() == request.prompts.size(), "return_logprob lists {} values for {} prompts",
            value.size(), request.prompts.size());
    for (std::size_t i = 0; i < value.size(); ++i) {
        enforce(value[i].is_boolean(), "return_logprob must be true or false");
        request.prompts[i].return_logprob = value[i].get<bool>();
        request.return_logprob = request.return_logprob || request.prompts[i].return_logprob;
    }
}

const std::string& id_of(const json& rid) {
    enforce(rid.is_string(), "rid must be a string or a list of strings");
    const std::string& id = rid.get_ref<const std::string&>();
    enforce(id.size() <= kLongestId, "rid has {} bytes, more than {}", id.size(), kLongestId);
    return id;
}

// Each prompt's own is what /abort_request goes by.
void check_unique(const std::vector<Prompt>& prompts) {
    std::set<std::string_view> seen;
    for (const Prompt& prompt : prompts)
        enforce(seen.insert(prompt.id).second, "rid lists \"{}\" twice", prompt.id);
}

// The id of the request and of each of its prompts: of a batch with one rid they are rid_0, rid_1 …, as SGLang's.
void assign_ids(const json& body, GenerateRequest& request, std::uint64_t request_number) {
    const json& rid = field(body, "rid");
    request.named = !rid.is_null();
    if (rid.is_array()) {
        enforce(rid.size() == request.prompts.size(), "rid lists {} ids for {} prompts", rid.size(),
                request.prompts.size());
        for (std::size_t i = 0; i < rid.size(); ++i) {
            request.prompts[i].id = id_of(rid[i]);
        }
        request.id = request.prompts.front().id;
        return check_unique(request.prompts);
    }
    request.id = request.named ? id_of(rid) : fmt::format("tandem-{}", request_number);
    for (std::size_t i = 0; i < request.prompts.size(); ++i) {
        request.prompts[i].id = request.as_list ? fmt::format("{}_{}", request.id, i) : request.id;
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

std::string text_of(const SampleOutput& sample, const Prompt& prompt, const tokenizer::Tokenizer& tokenizer) {
    std::vector<std::int32_t> tokens = sample.tokens;
    const bool ends_with_stop =
        sample.finish == Finish::stop && !tokens.empty() && tokens.back() == sample.matched;
    if (ends_with_stop && !prompt.no_stop_trim) tokens.pop_back();
    return tokenizer.decode(tokens, prompt.skip_special_tokens);
}

json logprobs_json(const GenerateRequest& request, const SampleOutput& sample,
                   const tokenizer::Tokenizer* tokenizer) {
    const bool with_text = request.return_text_in_logprobs && tokenizer != nullptr;
    json logprobs = json::array();
    for (std::size_t i = 0; i < sample.logprobs.size(); ++i) {
        const std::int32_t token = sample.tokens[i];
        logprobs.push_back(
            {sample.logprobs[i], token, with_text ? json(tokenizer->decode({token}, false)) : json()});
    }
    return logprobs;
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
    if (prompt.return_logprob) meta["output_token_logprobs"] = logprobs_json(request, sample, tokenizer);
    json answer = {{"output_ids", sample.tokens}, {"meta_info", std::move(meta)}};
    if (tokenizer != nullptr) answer["text"] = text_of(sample, prompt, *tokenizer);
    if (request.return_prompt_token_ids) answer["prompt_token_ids"] = prompt.tokens;
    return answer;
}

}  // namespace

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
    request.return_text_in_logprobs = parse_flag(body, "return_text_in_logprobs");
    request.return_prompt_token_ids = parse_flag(body, "return_prompt_token_ids");
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
        prompt.no_stop_trim = sampling.no_stop_trim;
        const bool explicit_seed = own_params && prompt.params.seed.has_value();
        prompt.first_stream = explicit_seed ? 0 : next_stream;
        next_stream += static_cast<std::uint64_t>(prompt.params.n);
        enforce(next_stream <= static_cast<std::uint64_t>(kMostSamples),
                "more than {} samples in one request", kMostSamples);
        check_lengths(prompt, sampling.has_max_new_tokens, limits);
        request.prompts.push_back(std::move(prompt));
    }
    parse_return_logprob(body, request);
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
        text += text_of_json(sample_json(request, sample, result.latency_seconds, tokenizer));
    }
    return single ? text : text + "]";
}

}  // namespace tandem::engine
