#include "engine_adapter/vllm/probe.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/error_text.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/model/model_config.h"
#include "common/model/parameters.h"
#include "engine_adapter/hf_directory/model_tensors.h"
#include "engine_adapter/http_api/versions.h"
#include "engine_adapter/vllm/layers.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

using model::kHead;

// Versions that tests/peers/vllm_push.sh was run with.
constexpr std::array<std::string_view, 2> kKnown{"0.32.0", "0.33.0"};

// Where GET /version is not vLLM's: who else it may be.
std::string what_answers(VllmServer& server, Deadline deadline) {
    const auto json_at = [&](const char* target) -> json {
        const http::Response response = server.ask("GET", target, "", deadline);
        return response.status == 200 ? json_text_or_nothing(response.body) : json();
    };
    const json info = json_at("/model_info");
    if (info.is_object() && info.contains("tandem")) return "a tandem-engine: use tandem:// or http://";
    if (json_at("/get_model_info").is_object()) return "SGLang, by its routes: use sglang://";
    return "no engine that is known here";
}

std::string version_of(VllmServer& server, Deadline deadline) {
    const http::Response response = server.ask("GET", "/version", "", deadline);
    const json answer = json_text_or_nothing(response.body);
    if (response.status == 200 && answer.is_object() && answer.contains("version") &&
        answer["version"].is_string())
        return answer["version"].get<std::string>();
    const bool locked =
        response.status == 401 || response.status == 403;  // by a proxy: it asks for no key there
    if (locked) server.get("/version", deadline);          // says what to set
    if (response.status != 200 && response.status != 404) {
        throw TransportError(server.name(), "probe",
                             "GET /version: " + http::error_text(response) + "; see the server's log");
    }
    throw TransportError(server.name(), "probe",
                         fmt::format("not a vLLM server (GET /version: HTTP {}), but {}", response.status,
                                     what_answers(server, deadline)));
}

std::string model_of(VllmServer& server, Deadline deadline) {
    const json models = server.get("/v1/models", deadline);
    // The first is the model itself; adapters, whose "parent" it is, come behind it.
    if (models.is_object() && models.contains("data") && models["data"].is_array() &&
        !models["data"].empty()) {
        const json& first = models["data"].front();
        if (first.is_object() && first.contains("root") && first["root"].is_string())
            return first["root"].get<std::string>();
    }
    throw TransportError(server.name(), "GET /v1/models", "the answer names no model and no \"root\"");
}

// What the server was started with, as far as it says that.
void ask_server_info(VllmServer& server, VllmInfo& into, Deadline deadline) {
    const http::Response response = server.ask("GET", "/server_info?config_format=json", "", deadline);
    const json info = response.status == 200 ? json_text_or_nothing(response.body) : json();
    const auto text_at = [&](const char* where) -> std::string {
        const json::json_pointer pointer(where);
        const bool there = info.is_object() && info.contains(pointer) && info[pointer].is_string();
        return there ? info[pointer].get<std::string>() : "";
    };
    into.backend = text_at("/vllm_config/weight_transfer_config/backend");
    into.device = text_at("/vllm_config/device_config/device_type");
    if (into.device.empty()) into.device = text_at("/vllm_config/device_config/device");
    into.load_format = text_at("/vllm_config/load_config/load_format");
    into.quantization = text_at("/vllm_config/model_config/quantization");
    into.folder = text_at("/vllm_config/model_config/model");
    const std::string dtype = text_at("/vllm_config/model_config/dtype");  // "torch.bfloat16"
    if (dtype == "torch.half" || dtype.ends_with("float16")) into.dtype = DType::float16;
    if (dtype.ends_with("bfloat16")) into.dtype = DType::bfloat16;
    if (dtype.ends_with("float32")) into.dtype = DType::float32;
}

// On the CPU vLLM packs a copy of the embedding for a tied head and, in a reload, packs it anew only where the files
// hold a head: without, it would go on computing logits with the old one. Elsewhere both are one tensor, and a head in
// the files is only read twice.
void add_tied_head(std::vector<TensorInfo>& tensors) {
    const auto embedding = std::find_if(tensors.begin(), tensors.end(), [](const TensorInfo& tensor) {
        return tensor.name.ends_with("embed_tokens.weight") && tensor.shape.size() == 2;
    });
    if (embedding == tensors.end()) return;
    const Shape shape = embedding->shape;
    const Part whole{embedding->name, {0, 0}, shape, 0, {shape[1], 1}};
    tensors.push_back({kHead, shape, embedding->dtype, {whole}});
}

// What the server wants, by the directory that it was started with.
std::vector<TensorInfo> tensors_of(const VllmInfo& info,
                                   const std::function<bool(const std::string& name)>& only) {
    std::vector<TensorInfo> tensors = tensors_of_directory(info.model.directory);
    if (info.dtype) follow_dtype(tensors, *info.dtype);
    tensors = whole_layers(std::move(tensors), only);
    const bool on_cpu = info.device.empty() || info.device == "cpu";
    if (on_cpu && model::ties_embeddings(info.model.directory)) add_tied_head(tensors);
    return tensors;
}

}  // namespace

VllmInfo probe_vllm(VllmServer& server, Deadline deadline) {
    VllmInfo info;
    info.version = version_of(server, deadline);
    if (const std::string closest = closest_known(info.version, kKnown); !closest.empty()) {
        log_warn("{}: vLLM {} has not been tried; the closest that has is {}", server.name(), info.version,
                 closest);
    }
    ask_server_info(server, info, deadline);
    info.paused = server.is_paused(deadline);  // a route of development mode
    info.weight_version = server.weight_version(deadline);
    return info;
}

void find_tensors(VllmServer& server, VllmInfo& info, const ConnectOptions& options, Deadline deadline) {
    info.model = served_model(server.name(), {model_of(server, deadline), info.folder}, options.pushed);
    require_known_quantization(server.name(), info.model, info.quantization);
    info.tensors = tensors_of(info, options.only);
}

void require_loads_directories(VllmServer& server, const VllmInfo& info) {
    // Loaders of vLLM 0.32 and 0.33 (model_loader/__init__.py, LoadFormats).
    constexpr std::array<std::string_view, 5> kOfDirectories{"auto", "hf", "safetensors", "fastsafetensors",
                                                             "instanttensor"};
    constexpr std::array<std::string_view, 4> kReplaced{"dummy", "pt", "npcache", "runai_streamer"};
    if (loads_as_auto(server.name(), info.load_format, kOfDirectories, kReplaced)) server.load_as("auto");
}

}  // namespace tandem::engine
