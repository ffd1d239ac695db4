#include "tests/support/vllm_stand_in.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/model/safetensors.h"

namespace tandem::test {

using nlohmann::json;

std::map<std::string, std::string> bytes_of_directory(const std::string& directory) {
    const auto files = model::Safetensors::open(directory);
    std::map<std::string, std::string> bytes;
    for (const std::string& name : files.names()) {
        const Tensor tensor = files.tensor(name);
        bytes[name] = {reinterpret_cast<const char*>(tensor.raw()), tensor.bytes()};
    }
    return bytes;
}

VllmStandIn::VllmStandIn(Options options)
    : options_(std::move(options)),
      weights_(bytes_of_directory(options_.model)),
      load_format_(options_.load_format),
      server_({.listen = options_.listen, .api_key = options_.api_key}) {
    const auto ok = [](const json& body) { return std::pair{200, body.dump()}; };
    route("GET", "/version", [=, this](const auto&) { return ok({{"version", options_.version}}); });
    route(
        "GET", "/v1/models",
        [=, this](const auto&) {
            const std::string& root = options_.root.empty() ? options_.model : options_.root;
            return ok({{"data", {{{"id", "model"}, {"root", root}}}}});
        },
        http::Access::user);
    if (options_.generates) {
        route(
            "POST", "/v1/completions", [this](const http::Request& request) { return complete(request); },
            http::Access::user);
    }
    if (options_.development_mode) {
        route("GET", "/server_info", [=, this](const auto&) {
            json config = {
                {"model_config",
                 {{"dtype", "torch." + options_.dtype}, {"enable_sleep_mode", options_.sleep_mode}}},
                {"device_config", {{"device_type", options_.device}}},
                {"load_config", {{"load_format", options_.load_format}}}};
            if (!options_.folder.empty()) config["model_config"]["model"] = options_.folder;
            if (!options_.quantization.empty())
                config["model_config"]["quantization"] = options_.quantization;
            const std::string backend = options_.plugin != nullptr ? "tandem" : options_.backend;
            if (!backend.empty()) config["weight_transfer_config"] = {{"backend", backend}};
            return ok({{"vllm_config", config}});
        });
        route("GET", "/is_paused", [=, this](const auto&) { return ok({{"is_paused", paused_}}); });
        route("GET", "/weight_info", [=, this](const auto&) { return ok({{"weight_version", version_}}); });
        route("POST", "/pause", [=, this](const http::Request& request) {
            if (request.query != "mode=wait" && request.query != "mode=abort" && request.query != "mode=keep")
                violate("paused with " + request.query);
            pause_modes_.push_back(request.query.substr(std::string("mode=").size()));
            paused_ = true;
            takes_paused_ = pause_modes_.back() == "keep";
            return ok({{"status", "paused"}});
        });
        route("POST", "/resume", [=, this](const auto&) {
            if (stale_cache_) violate("resumed with a prefix cache of weights from before");
            if (version_.starts_with("loading")) violate("resumed while it says that it loads");
            if (!asleep_.empty()) violate("resumed while it sleeps");
            paused_ = false;
            return ok({{"status", "resumed"}});
        });
        route("POST", "/collective_rpc",
              [this](const http::Request& request) { return call_workers(request); });
        route("POST", "/update_weight_version", [=, this](const http::Request& request) {
            const json body = json::parse(request.body, nullptr, false);
            if (!body.is_object() || body.size() != 1 || !body.value("new_version", json()).is_string())
                return std::pair{422, json{{"detail", "new_version"}}.dump()};
            version_ = body["new_version"].get<std::string>();
            return ok({{"status", "updated"}});
        });
        route("POST", "/reset_prefix_cache", [=, this](const auto&) {
            if (!paused_) violate("its cache was emptied while it runs");
            stale_cache_ = false;
            return ok({{"success", true}});
        });
    }
    route_sleep();
    if (options_.plugin != nullptr) route_plugin();
    if (options_.more_routes) options_.more_routes(*this);
    server_.start();
}

void VllmStandIn::route_plugin() {
    const auto done = [] { return std::pair{200, json{{"message", "done"}}.dump()}; };
    const auto failed = [](const std::string& why) { return std::pair{500, json{{"error", why}}.dump()}; };
    route("POST", "/init_weight_transfer_engine", [=, this](const http::Request& request) {
        const json body = json::parse(request.body, nullptr, false);
        if (body != json{{"init_info", {{"protocol", 1}}}}) return failed("init_info");
        options_.plugin->init();
        return done();
    });
    route("POST", "/start_weight_update", [=, this](const auto&) {
        if (update_open_) return failed("a weight update is already active");
        update_open_ = true;
        options_.plugin->start();
        return done();
    });
    route("POST", "/update_weights", [this](const http::Request& request) { return update(request); });
    route("POST", "/finish_weight_update", [=, this](const http::Request& request) {
        if (!update_open_) return failed("finish_weight_update without start_weight_update");
        const json body = json::parse(request.body, nullptr, false);
        options_.plugin->finish();
        update_open_ = false;
        version_ = body.at("weight_version").get<std::string>();
        return done();
    });
}

std::pair<int, std::string> VllmStandIn::worker_state(const std::string& kwargs) {
    const json given = json::parse(kwargs);
    std::string note;
    if (given.contains("note")) note = given["note"].get<std::string>();
    const json state = json::parse(options_.plugin->state(given.contains("note") ? &note : nullptr));
    return {200, json{{"results", {state}}}.dump()};
}

std::pair<int, std::string> VllmStandIn::update(const http::Request& request) {
    told_to_load();
    if (!update_open_) return {500, "start_weight_update must be called before update_weights"};
    try {
        const json info = json::parse(request.body).at("update_info");
        if (info.at("memory") != json::parse(options_.plugin->state(nullptr)).at("memory"))
            violate("told to load from memory that it does not have");
        if (auto loaded = options_.plugin->update(info.at("version").get<std::int64_t>())) {
            weights_ = std::move(*loaded);
            stale_cache_ = true;
        }
    } catch (const std::exception& error) {
        update_open_ = false;
        return {500, json{{"error", error.what()}}.dump()};
    }
    return {200, json{{"message", "Weights updated"}}.dump()};
}

VllmStandIn::~VllmStandIn() {
    late_.clear();
    server_.stop();
}

void VllmStandIn::route(const std::string& method, const std::string& path, Respond respond,
                        http::Access access) {
    const auto handle = [this, method, path, respond = std::move(respond)](http::Request& request,
                                                                           http::Responder responder) {
        std::unique_lock lock(mutex_);
        calls_.push_back(method + " " + path);
        std::pair<int, std::string> answer;
        const auto fails = options_.fails.find(path);
        if (fails == options_.fails.end()) {
            answer = respond(request);
        } else if (fails->second == 0) {
            never_.push_back(std::move(responder));
            return;
        } else {
            answer = {fails->second, "Internal Server Error"};
        }
        if (options_.delay.count() == 0) return responder.send(answer.first, std::move(answer.second));
        late_.emplace_back([delay = options_.delay, responder, answer] {
            std::this_thread::sleep_for(delay);
            responder.send(answer.first, answer.second);
        });
    };
    server_.route(method, path, handle, access);
}

std::pair<int, std::string> VllmStandIn::call_workers(const http::Request& request) {
    const json body = json::parse(request.body, nullptr, false);
    const std::string method = body.is_object() ? body.value("method", "") : "";
    if (options_.plugin != nullptr && method == "tandem_state")
        return worker_state(body.value("kwargs", json::object()).dump());
    const json::json_pointer format("/kwargs/overrides/load_config/load_format");
    if (method == "update_config" && body.contains(format)) {
        load_format_ = body[format].get<std::string>();
        return {200, json{{"results", {nullptr}}}.dump()};
    }
    return load(request);
}

std::pair<int, std::string> VllmStandIn::load(const http::Request& request) {
    const json body = json::parse(request.body, nullptr, false);
    const json::json_pointer path("/kwargs/weights_path");
    if (!body.is_object() || body.value("method", "") != "reload_weights" || !body.contains(path) ||
        !body.value("timeout", json()).is_number())
        return {400, json{{"detail", "not a reload_weights"}}.dump()};
    if (load_format_ != "auto") return {500, "Model reloading with `" + load_format_ + "` format"};
    const std::string directory = body[path].get<std::string>();
    told_to_load();
    if (!directories_.insert(directory).second) violate("told to load the path of an earlier load");
    try {
        // A layer that the directory has nothing of stays as it is.
        for (auto& [name, bytes] : bytes_of_directory(directory)) {
            if (!options_.keeps_weights) weights_[name] = std::move(bytes);
        }
    } catch (const std::exception& error) {
        return {500, error.what()};
    }
    stale_cache_ = true;
    return {200, json{{"results", {nullptr}}}.dump()};
}

std::pair<int, std::string> VllmStandIn::complete(const http::Request& request) {
    asked_to_generate();
    if (auto refusal = refusal_of_a_pause()) return *refusal;
    const json body = json::parse(request.body, nullptr, false);
    if (!body.is_object() || body.value("model", "") != "model" || body.value("temperature", 1.0) != 0 ||
        !body.value("ignore_eos", false) || !body.value("return_token_ids", false))
        return {400, json{{"error", {{"message", "not a greedy completion"}}}}.dump()};
    json choices = json::array();
    for (const auto& prompt : body["prompt"].get<std::vector<std::vector<std::int32_t>>>()) {
        const auto [tokens, log_probs] =
            options_.generates(weights_, prompt, body["max_tokens"].get<std::int64_t>());
        choices.push_back({{"index", choices.size()},
                           {"token_ids", tokens},
                           {"logprobs", {{"token_logprobs", log_probs}}}});
    }
    return {200, json{{"choices", choices}}.dump()};
}

std::optional<std::pair<int, std::string>> VllmStandIn::refusal_of_a_pause() const {
    if (!options_.refuses_paused || !paused_ || takes_paused_) return std::nullopt;
    const json error = {{"message", "Generation is paused. Please retry after it resumes."},
                        {"type", "ServiceUnavailableError"},
                        {"code", 503}};
    return std::pair{503, json{{"error", error}}.dump()};
}

std::string VllmStandIn::url() const {
    return "vllm://127.0.0.1:" + std::to_string(server_.port());
}
void VllmStandIn::set_failure(const std::string& route, int status) {
    const std::lock_guard lock(mutex_);
    options_.fails[route] = status;
}
std::map<std::string, std::string> VllmStandIn::weights() const {
    const std::lock_guard lock(mutex_);
    return weights_;
}
std::string VllmStandIn::weight_version() const {
    const std::lock_guard lock(mutex_);
    return version_;
}
bool VllmStandIn::paused() const {
    const std::lock_guard lock(mutex_);
    return paused_;
}
std::set<std::string> VllmStandIn::asleep() const {
    const std::lock_guard lock(mutex_);
    return asleep_;
}
void VllmStandIn::set_paused(bool paused) {
    const std::lock_guard lock(mutex_);
    paused_ = paused;
    takes_paused_ = false;
}
std::vector<std::string> VllmStandIn::violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
}
std::set<std::string> VllmStandIn::directories() const {
    const std::lock_guard lock(mutex_);
    return directories_;
}
std::vector<std::string> VllmStandIn::calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
}

}  // namespace tandem::test
