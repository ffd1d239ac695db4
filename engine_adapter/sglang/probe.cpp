#include "engine_adapter/sglang/probe.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/error.h"
#include "common/http/error_text.h"
#include "common/json_text.h"
#include "common/log.h"
#include "engine_adapter/hf_directory/model_tensors.h"
#include "engine_adapter/http_api/versions.h"
#include "engine_adapter/tandem/receiver_engine.h"

namespace tandem::engine {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Versions that tests/peers/sglang_push.sh was run with: 0.5.15.post1, 0.5.23.
constexpr std::array<std::string_view, 2> kKnown{"0.5.15", "0.5.23"};

constexpr int kProtocol = 1;  // of the plug-in's state (sync/python/tandem_sync/sglang/worker.py)

std::string text_at(const json& info, const char* key) {
    return info.is_object() && info.contains(key) && info[key].is_string() ? info[key].get<std::string>()
                                                                           : "";
}

std::size_t count_at(const json& info, const char* key) {
    const bool there = info.is_object() && info.contains(key) && info[key].is_number_unsigned();
    return there ? info[key].get<std::size_t>() : 1;
}

// Where GET /model_info is not SGLang's: who else it may be.
std::string what_answers(SglangServer& server, const json& info, Deadline deadline) {
    if (info.is_object() && info.contains("tandem")) return "a tandem-engine: use tandem:// or http://";
    const http::Response response = server.ask("GET", "/version", "", deadline);
    const json answer = json_text_or_nothing(response.body);
    if (response.status == 200 && !text_at(answer, "version").empty())
        return "vLLM, by its routes: use vllm://";
    return "no engine that is known here";
}

json checked_model_info(SglangServer& server, Deadline deadline) {
    const http::Response response = server.ask("GET", "/model_info", "", deadline);
    const json info = json_text_or_nothing(response.body);
    const bool refused = response.status == 401 || response.status == 403 || response.status >= 500;
    if (refused) return server.model_info(deadline);  // says why
    if (response.status == 200 && !text_at(info, "model_path").empty() && !info.contains("tandem"))
        return info;
    if (!response.location.empty())
        throw TransportError(server.name(), "probe", "GET /model_info: " + http::error_text(response));
    throw TransportError(server.name(), "probe",
                         fmt::format("not an SGLang server (GET /model_info: HTTP {}), but {}",
                                     response.status, what_answers(server, info, deadline)));
}

// Asked with a method that it does not have, a route that is there answers 405.
void require_update_route(SglangServer& server, Deadline deadline) {
    const char* route = "/update_weights_from_disk";
    if (server.ask("GET", route, "", deadline).status == 404) server.get(route, deadline);  // says why
}

std::optional<DType> dtype_of(const json& server_info) {
    const std::string name = text_at(server_info, "dtype");
    if (name == "bfloat16") return DType::bfloat16;
    if (name == "float16" || name == "half") return DType::float16;
    if (name == "float32" || name == "float") return DType::float32;
    return {};  // "auto": it casts what it loads
}

bool has_plugin(const json& server_info) {
    const json& loaders =
        server_info.is_object() ? server_info.value("custom_weight_loader", json()) : json();
    return loaders.is_array() && std::find(loaders.begin(), loaders.end(), kPluginLoader) != loaders.end();
}

// Nothing but /update_weights_from_ipc makes such a server ready; when its wait ends it serves random weights all the same.
void warn_of_waiting_for_weights(const SglangServer& server, const json& server_info) {
    const char* option = "checkpoint_engine_wait_weights_before_ready";
    if (!server_info.is_object() || server_info.value(option, json()) != true ||
        server.name().starts_with("sglang+ipc://"))
        return;
    log_warn(
        "{} was started with --checkpoint-engine-wait-weights-before-ready: this push does not make it "
        "ready, and "
        "after SGLANG_WAIT_WEIGHTS_READY_TIMEOUT it says that it is, whatever it holds; use sglang+ipc://, "
        "or start "
        "it without",
        server.name());
}

SglangPlugin plugin_of(SglangServer& server, const json& server_info) {
    const std::string phase = "GET /server_info";
    try {
        const json& ranks = server_info.at("internal_states");
        if (!ranks.at(0).contains("tandem")) {
            throw TransportError(
                server.name(), phase,
                "it was started with our loader and runs without our plug-in: install tandem-sync "
                "in its environment, and name tandem in SGLANG_PLUGINS where that is set");
        }
        const json& state = ranks.at(0).at("tandem");
        require_protocol(state, kProtocol, server.name(), phase);
        if (const auto failure = state.at("failure").get<std::string>(); !failure.empty())
            throw TransportError(server.name(), phase, "its plug-in receives no weights: " + failure);
        return {whereabouts_of(state), state.at("whole").get<bool>(), state.at("note") != 0};
    } catch (const json::exception& error) {
        throw TransportError(server.name(), phase,
                             fmt::format("the plug-in's state makes no sense: {}", error.what()));
    }
}

}  // namespace

SglangInfo probe_sglang(SglangServer& server, Deadline deadline) {
    const json model_info = checked_model_info(server, deadline);
    const json server_info = server.get("/server_info", deadline);
    SglangInfo info;
    info.version = text_at(server_info, "version");
    info.ranks = count_at(server_info, "tp_size");
    info.replicas = count_at(server_info, "dp_size");
    info.sessions = version_numbers(info.version) >= std::array{0, 5, 21};
    if (const std::string closest = closest_known(info.version, kKnown); !closest.empty()) {
        log_warn("{}: SGLang {} is not known here; the closest that is: {}", server.name(), info.version,
                 closest);
    }
    info.weight_version = server.weight_version(deadline);
    info.paused = !server.takes_requests(deadline).value_or(true);
    info.model_path = text_at(model_info, "model_path");
    info.tokenizer_path = text_at(model_info, "tokenizer_path");
    info.started_with = text_at(server_info, "model_path");
    info.dtype = dtype_of(server_info);
    info.device = text_at(server_info, "device");
    if (has_plugin(server_info)) {
        info.plugin = plugin_of(server, server_info);
    } else {
        require_update_route(server, deadline);
    }
    info.load_format = text_at(server_info, "load_format");
    info.quantization = text_at(server_info, "quantization");
    warn_of_waiting_for_weights(server, server_info);
    return info;
}

// After an update from a directory the server says that this was its model, and ours are gone by then. The tokenizer
// stays what it was, which is the model's directory where no other was named.
void find_tensors(const SglangServer& server, SglangInfo& info, const fs::path& pushed) {
    info.model =
        served_model(server.name(), {info.model_path, info.started_with, info.tokenizer_path}, pushed);
    require_known_quantization(server.name(), info.model, info.quantization);
    info.tensors = tensors_of_directory(info.model.directory);
    if (info.dtype) follow_dtype(info.tensors, *info.dtype);
}

void require_loads_directories(SglangServer& server, const SglangInfo& info) {
    // Loaders of SGLang 0.5.23 (configs/load_config.py, LoadFormat).
    constexpr std::array<std::string_view, 4> kOfDirectories{"auto", "safetensors", "fastsafetensors",
                                                             "layered"};
    constexpr std::array<std::string_view, 6> kReplaced{
        "dummy", "pt", "npcache", "remote", "remote_instance", "runai_streamer"};
    if (loads_as_auto(server.name(), info.load_format, kOfDirectories, kReplaced)) server.load_as("auto");
}

SglangPlugin plugin_state(SglangServer& server, Deadline deadline) {
    return plugin_of(server, server.get("/server_info", deadline));
}

}  // namespace tandem::engine
