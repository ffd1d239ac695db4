#include "tests/support/vllm_rollouts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "common/model/safetensors.h"
#include "tests/support/model_forward.h"
#include "tests/support/vllm_stand_in.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

struct Answer {
    Tokens tokens;
    std::vector<double> logprobs;
    bool stopped = false;
};

class Sampler {
  public:
    Sampler(VllmStandIn& server, RolloutRoutes options) : server_(server), options_(std::move(options)) {}

    Answer complete(Tokens tokens, const json& p) {
        const std::string directory = held_directory();
        std::mt19937_64 random(p.at("seed").get<std::uint64_t>());
        const auto stops = p.at("stop_token_ids").get<Tokens>();
        Answer answer;
        while (!answer.stopped && answer.tokens.size() < p.at("max_tokens").get<std::size_t>()) {
            const Tensor logits =
                tandem::testing::engine_logits(directory, DType::float32, tokens, tokens.size());
            const auto [token, logprob] = sample(logits, p.at("temperature").get<double>(), random);
            tokens.push_back(token);
            answer.tokens.push_back(token);
            answer.logprobs.push_back(logprob);
            answer.stopped = std::find(stops.begin(), stops.end(), token) != stops.end() ||
                             (token == options_.eos && !p.at("ignore_eos").get<bool>());
        }
        return answer;
    }

    // What vLLM would answer with 400, or with other samples than a trainer means.
    std::string complaint(const json& p, bool completions) {
        for (const char* key : {"seed", "max_tokens", "temperature", "stop_token_ids", "ignore_eos"}) {
            if (!p.contains(key)) return std::string("no ") + key;
        }
        if (p.value("logprobs", -1) != 0) return "logprobs";
        for (const auto& [key, neutral] : {std::pair<const char*, double>{"top_p", 1},
                                           {"top_k", 0},
                                           {"min_p", 0},
                                           {"repetition_penalty", 1}}) {
            if (p.value(key, -1.0) != neutral) return key;
        }
        if (completions && !p.value("return_token_ids", false)) return "return_token_ids";
        return {};
    }
    const std::string& version() const { return server_.held_version(); }

  private:
    // The weights that the server holds now, as a directory.
    std::string held_directory() {
        const std::string directory = options_.scratch + "/held";
        if (version_ == server_.held_version()) return directory;
        fs::create_directories(directory);
        fs::copy(fs::path(options_.model) / "config.json", directory, fs::copy_options::overwrite_existing);
        const auto files = model::Safetensors::open(options_.model);
        std::vector<std::pair<std::string, Tensor>> tensors;
        for (const std::string& name : files.names()) {
            Tensor tensor = Tensor::empty(files.shape(name), files.dtype(name), "test");
            const std::string& bytes = server_.held_weights().at(name);
            if (bytes.size() != tensor.bytes()) server_.violate(name + " has another size");
            std::memcpy(tensor.raw(), bytes.data(), std::min(bytes.size(), tensor.bytes()));
            tensors.emplace_back(name, tensor);
        }
        model::write_safetensors(directory + "/model.safetensors", tensors);
        version_ = server_.held_version();
        return directory;
    }

    // temperature 0: the likeliest. The log-prob is the one that is sampled by.
    static std::pair<std::int32_t, double> sample(const Tensor& logits, double temperature,
                                                  std::mt19937_64& random) {
        const auto* row = reinterpret_cast<const float*>(logits.raw());
        const auto count = static_cast<std::size_t>(logits.numel());
        const double scale = temperature == 0 ? 1 : 1 / temperature;
        const double most = static_cast<double>(*std::max_element(row, row + count));
        std::vector<double> weights;
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i) {
            weights.push_back(std::exp((static_cast<double>(row[i]) - most) * scale));
            sum += weights.back();
        }
        const std::size_t chosen =
            temperature == 0
                ? static_cast<std::size_t>(std::max_element(weights.begin(), weights.end()) - weights.begin())
                : std::discrete_distribution<std::size_t>(weights.begin(), weights.end())(random);
        return {static_cast<std::int32_t>(chosen), std::log(weights[chosen] / sum)};
    }

    VllmStandIn& server_;
    RolloutRoutes options_;
    std::string version_;  // of the directory
};

std::pair<int, std::string> refuse(int status, const std::string& why) {
    return {status, json{{"error", {{"message", why}}}}.dump()};
}

}  // namespace

void add_rollout_routes(VllmStandIn& server, const RolloutRoutes& options) {
    const auto sampler = std::make_shared<Sampler>(server, options);
    const auto generate = [sampler, on = options.scale_out](const http::Request& request) {
        if (!on) return refuse(403, "Scale-out endpoints are disabled.");
        const json body = json::parse(request.body, nullptr, false);
        if (!body.is_object() || !body.contains("token_ids") || !body.contains("sampling_params"))
            return refuse(400, "Field required");
        const json& p = body["sampling_params"];
        if (const std::string why = sampler->complaint(p, false); !why.empty()) return refuse(400, why);
        const Answer answer = sampler->complete(body["token_ids"].get<Tokens>(), p);
        json content = json::array();
        for (std::size_t i = 0; i < answer.tokens.size(); ++i)
            content.push_back({{"token_id", answer.tokens[i]}, {"logprob", answer.logprobs[i]}});
        const json span{{"version", sampler->version()}, {"start", 0}, {"end", answer.tokens.size()}};
        const json choice{{"index", 0},
                          {"finish_reason", answer.stopped ? "stop" : "length"},
                          {"token_ids", answer.tokens},
                          {"weight_versions", {span}},
                          {"logprobs", {{"content", content}}}};
        return std::pair{200, json{{"choices", {choice}}}.dump()};
    };
    const auto complete = [sampler](const http::Request& request) {
        const json body = json::parse(request.body, nullptr, false);
        if (!body.is_object() || !body.contains("prompt")) return refuse(400, "Field required");
        if (const std::string why = sampler->complaint(body, true); !why.empty()) return refuse(400, why);
        const Answer answer = sampler->complete(body["prompt"].get<Tokens>(), body);
        const json choice{{"index", 0},
                          {"finish_reason", answer.stopped ? "stop" : "length"},
                          {"token_ids", answer.tokens},
                          {"logprobs", {{"token_logprobs", answer.logprobs}}}};
        return std::pair{200, json{{"choices", {choice}}}.dump()};
    };
    server.route("POST", "/inference/v1/generate", generate, http::Access::user);
    server.route("POST", "/v1/completions", complete, http::Access::user);
}

}  // namespace tandem::test
