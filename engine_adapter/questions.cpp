#include "engine_adapter/questions.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/http/access.h"
#include "common/http/client.h"
#include "common/json_text.h"
#include "engine_adapter/http_api/weight_version.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

// vLLM's completions. A prompt's choice has its index.
constexpr const char* kCompletions = "/v1/completions";
std::vector<Continuation> of_completions(http::Client& client, const Prompts& prompts, std::int64_t length,
                                         Deadline deadline) {
    const json models = client.get_json("/v1/models", deadline);
    const json body = {{"model", models.at("data").at(0).at("id")},
                       {"prompt", prompts},
                       {"max_tokens", length},
                       {"temperature", 0},
                       {"logprobs", 1},
                       {"return_token_ids", true},
                       {"ignore_eos", true}};
    std::vector<Continuation> continuations(prompts.size());
    const json answer = client.post_json_when_available(kCompletions, body, deadline);
    for (const json& choice : answer.at("choices")) {
        Continuation& continuation =
            continuations.at(static_cast<std::size_t>(integer_of(choice.at("index"))));
        continuation.tokens = token_ids_of(choice.at("token_ids"));
        continuation.log_probs = choice.at("logprobs").at("token_logprobs").get<std::vector<double>>();
    }
    return continuations;
}

// SGLang's route, which engines of ours answer too: an answer for each prompt, in their order.
constexpr const char* kGenerate = "/generate";
std::vector<Continuation> of_generate(http::Client& client, const Prompts& prompts, std::int64_t length,
                                      Deadline deadline) {
    const json body = {
        {"input_ids", prompts},
        {"sampling_params", {{"max_new_tokens", length}, {"temperature", 0}, {"ignore_eos", true}}},
        {"return_logprob", true}};
    std::vector<Continuation> continuations;
    for (const json& answer : client.post_json(kGenerate, body, deadline)) {
        Continuation& continuation = continuations.emplace_back();
        for (const json& token : answer.at("meta_info").at("output_token_logprobs")) {
            continuation.log_probs.push_back(token.at(0).get<double>());
            continuation.tokens.push_back(token_ids_of(json::array({token.at(1)})).front());
        }
    }
    return continuations;
}

ServerState of_vllm(http::Client& client, Deadline deadline) {
    ServerState state;
    const json info = client.get_json("/server_info?config_format=json", deadline);
    if (const json id = info.value(json::json_pointer("/vllm_config/instance_id"), json()); !id.is_null())
        state.incarnation = id.dump();
    state.version =
        number_of(client.get_json("/weight_info", deadline).at("weight_version").get<std::string>());
    return state;
}

// What a start draws, where its command does not say it.
ServerState of_sglang(http::Client& client, Deadline deadline) {
    ServerState state;
    const json info = client.get_json("/server_info", deadline);
    for (const char* drawn : {"random_seed", "nccl_port"}) {
        if (const json value = info.value(drawn, json()); !value.is_null())
            state.incarnation += value.dump() + " ";
    }
    state.version =
        number_of(client.get_json("/model_info", deadline).at("weight_version").get<std::string>());
    return state;
}

ServerState of_tandem(http::Client& client, Deadline deadline) {
    const json info = client.get_json("/model_info", deadline);
    return {info.value(json::json_pointer("/tandem/incarnation"), ""),
            number_of(info.at("weight_version").get<std::string>())};
}

struct Dialect {
    std::string_view scheme;  // of names
    std::string_view base;    // what stands for it in a URL
    const char* key;          // environment
    const char* route;
    std::vector<Continuation> (*ask)(http::Client&, const Prompts&, std::int64_t, Deadline);
    ServerState (*state)(http::Client&, Deadline);
};

constexpr Dialect kDialects[] = {
    {"vllm://", "http://", "VLLM_API_KEY", kCompletions, of_completions, of_vllm},
    {"sglang://", "http://", "SGLANG_API_KEY", kGenerate, of_generate, of_sglang},
    {"tandem://", "http://", "TANDEM_API_KEY", kGenerate, of_generate, of_tandem},
    {"http://", "http://", "TANDEM_API_KEY", kGenerate, of_generate, of_tandem},
    {"unix:/", "unix:/", "TANDEM_API_KEY", kGenerate, of_generate, of_tandem},
};

// Without what says how weights reach it: "sglang+tensor://H:P" and "vllm://H:P?transport=tcp" answer at H:P.
std::string plain_name(const std::string& name) {
    std::string plain = name.substr(0, name.find('?'));
    const auto plus = plain.find('+'), end = plain.find("://");
    if (end != std::string::npos && plus < end) plain.erase(plus, end - plus);
    return plain;
}

const Dialect& dialect_of(const std::string& name) {
    for (const Dialect& dialect : kDialects) {
        if (name.starts_with(dialect.scheme)) return dialect;
    }
    throw BadInput(fmt::format("'{}' has no HTTP server that could be asked what it generates", name));
}

void check_whole(const std::vector<Continuation>& continuations, std::size_t prompts, std::int64_t length) {
    enforce(continuations.size() == prompts, "{} answers to {} prompts", continuations.size(), prompts);
    const auto tokens = static_cast<std::size_t>(length);
    for (const Continuation& continuation : continuations) {
        enforce(continuation.tokens.size() == tokens && continuation.log_probs.size() == tokens,
                "an answer of {} tokens and {} log-probs, where {} were asked for",
                continuation.tokens.size(), continuation.log_probs.size(), tokens);
    }
}

http::Client client_of(const std::string& name, const Dialect& dialect, const ConnectOptions& options) {
    return http::Client(std::string(dialect.base) + plain_name(name).substr(dialect.scheme.size()),
                        key_for(name, options, dialect.key));
}

// What is no answer of the kind that was asked for is told as the server's fault.
template <class Question>
auto checked(const std::string& name, const std::string& phase, const Question& question) {
    try {
        return question();
    } catch (const json::exception& error) {
        throw TransportError(name, phase, fmt::format("an answer of another form: {}", error.what()));
    } catch (const BadInput& error) {
        throw TransportError(name, phase, error.what());
    }
}

}  // namespace

std::vector<Continuation> ask_continuations(const std::string& name, const Prompts& prompts,
                                            std::int64_t length, Deadline deadline,
                                            const ConnectOptions& options) {
    const Dialect& dialect = dialect_of(plain_name(name));
    http::Client client = client_of(name, dialect, options);
    return checked(name, fmt::format("POST {}", dialect.route), [&] {
        std::vector<Continuation> continuations = dialect.ask(client, prompts, length, deadline);
        check_whole(continuations, prompts.size(), length);
        return continuations;
    });
}

ServerState ask_state(const std::string& name, Deadline deadline, const ConnectOptions& options) {
    const Dialect& dialect = dialect_of(plain_name(name));
    http::Client client = client_of(name, dialect, options);
    return checked(name, "who it is", [&] { return dialect.state(client, deadline); });
}

}  // namespace tandem::engine
