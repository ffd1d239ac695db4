#include "engine_adapter/sglang/server.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/http/error_text.h"
#include "common/json_text.h"
#include "engine_adapter/torch_pickle/pickle.h"
#include "engine_adapter/torch_pickle/tensors.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

constexpr std::string_view kNotFlushed = "Weights were updated, but the cache was not flushed";

// What a rank says that found no weights there: it takes a directory that it cannot see for a name on a hub.
constexpr std::string_view kNoWeights = "Failed to get weights iterator";

// What a rank says that has not written a byte.
constexpr std::array<std::string_view, 7> kRefusals{kNoWeights,
                                                    "IPC weight update failed: ImportError",
                                                    "Failed to get model loader",
                                                    "tandem: nothing was loaded",
                                                    "Online weight updates are not supported",
                                                    "update_weights_from_tensor must run between",
                                                    "update_weights_from_distributed must run between"};

bool is_refusal(std::string_view message) {
    for (const std::string_view refusal : kRefusals)
        if (message.starts_with(refusal)) return true;
    return false;
}

// Of the failed update that data-parallel ranks answered with these messages, joined by " | ".
SglangUpdate outcome_of(std::string_view message) {
    bool refused = true;
    for (std::size_t begin = 0; begin <= message.size();) {
        const std::size_t end = std::min(message.find(" | ", begin), message.size());
        refused = refused && is_refusal(message.substr(begin, end - begin));
        begin = end + 3;
    }
    if (refused) return SglangUpdate::refused;
    return message.starts_with(kNotFlushed) ? SglangUpdate::cached : SglangUpdate::unknown;
}

}  // namespace

SglangServer::SglangServer(const std::string& name, const std::string& key)
    : HttpApi(name, key,
              {"SGLANG_API_KEY",
               "SGLang has the route from 0.5.15 on, in its Python HTTP server: start that (without "
               "SGLANG_RUST_SERVER), and name it itself, not a router before it"}) {}

json SglangServer::model_info(Deadline deadline) {
    json info = get("/model_info", deadline);
    if (!info.is_object()) throw TransportError(name(), "GET /model_info", "the answer is no object");
    return info;
}

std::string SglangServer::weight_version(Deadline deadline) {
    const json info = model_info(deadline);
    if (!info.contains("weight_version") || !info["weight_version"].is_string())
        throw TransportError(name(), "GET /model_info", "the answer has no \"weight_version\"");
    return info["weight_version"].get<std::string>();
}

std::optional<bool> SglangServer::takes_requests(Deadline deadline) {
    const int status = ask("GET", "/ready", "", deadline).status;
    if (status == 404) return {};
    return status == 200;
}

void SglangServer::pause(InFlight running, Deadline deadline) {
    const char* mode = running == InFlight::keep ? "retract" : "abort";
    post("/pause_generation", json{{"mode", mode}}.dump(), deadline);
}

void SglangServer::resume(Deadline deadline) {
    post("/continue_generation", "{}", deadline);
}

SglangAnswer SglangServer::update(const std::string& target, const std::string& body, Deadline deadline) {
    const http::Response response = ask("POST", target, body, deadline);
    SglangAnswer answer{SglangUpdate::unknown, "POST " + target, why(response)};
    const json said = json_text_or_nothing(response.body);
    if (said.is_object() && said.contains("success") && said["success"].is_boolean()) {
        answer.update = response.status == 200 && said["success"].get<bool>()
                            ? SglangUpdate::done
                            : outcome_of(http::message_of(response.body));
        if (http::message_of(response.body).starts_with(kNoWeights))
            answer.why +=
                " Weights lie in /dev/shm: server and pusher must share it, as they do on one host "
                "(containers: --ipc)";
    } else if (response.status >= 400 && response.status < 500) {
        answer.update = SglangUpdate::refused;  // a body that it does not take, a wrong key, no such route
    }
    return answer;
}

SglangAnswer SglangServer::update_from_disk(const std::filesystem::path& directory,
                                            const std::string& version, Deadline deadline) {
    return update_from_disk(
        json{{"model_path", directory.string()}, {"weight_version", version}, {"flush_cache", true}},
        deadline);
}

SglangAnswer SglangServer::update_from_disk(const std::filesystem::path& directory, Deadline deadline) {
    return update_from_disk(json{{"model_path", directory.string()}, {"flush_cache", false}}, deadline);
}

SglangAnswer SglangServer::update_from_disk(json body, Deadline deadline) {
    if (!load_format_.empty()) body["load_format"] = load_format_;
    return update("/update_weights_from_disk", text_of_json(body), deadline);
}

void SglangServer::begin_update(Deadline deadline) {
    const char* route = "/begin_weight_update";
    const std::string body = R"({"selector": "all"})";
    const http::Response response = ask("POST", route, body, deadline);
    if (response.status == 200) return;
    if (!http::message_of(response.body).starts_with("a weight-update session is already open"))
        throw TransportError(name(), std::string("POST ") + route, why(response));
    end_update(deadline);
    post(route, body, deadline);
}

void SglangServer::end_update(Deadline deadline) {
    post("/end_weight_update", "{}", deadline);
}

SglangAnswer SglangServer::update_from_tensors(const std::string& body, Deadline deadline) {
    return update("/update_weights_from_tensor", body, deadline);
}

void SglangServer::init_group(const json& group, Deadline deadline) {
    post("/init_weights_update_group", group.dump(), deadline);
}

void SglangServer::destroy_group(const std::string& name, Deadline deadline) {
    post("/destroy_weights_update_group", json{{"group_name", name}}.dump(), deadline);
}

SglangAnswer SglangServer::update_from_group(const std::string& body, Deadline deadline) {
    return update("/update_weights_from_distributed", body, deadline);
}

SglangAnswer SglangServer::update_from_ipc(const std::string& body, Deadline deadline) {
    return update("/update_weights_from_ipc", body, deadline);
}

SglangAnswer SglangServer::load_staged(std::int64_t version, std::size_t ranks, Deadline deadline) {
    const std::string nothing = base64(pickle::document(pickle::list({})));
    const json body = {{"serialized_named_tensors", std::vector<std::string>(ranks, nothing)},
                       {"load_format", kPluginLoader},
                       {"weight_version", std::to_string(version)},
                       {"flush_cache", false}};  // the plug-in does
    return update("/update_weights_from_tensor", body.dump(), deadline);
}

void SglangServer::leave_note(bool paused_by_push, Deadline deadline) {
    post("/set_internal_state", json{{"server_args", {{"tandem_note", paused_by_push ? 1 : 0}}}}.dump(),
         deadline);
}

void SglangServer::set_weight_version(const std::string& version, Deadline deadline) {
    post("/update_weight_version", json{{"new_version", version}, {"abort_all_requests", false}}.dump(),
         deadline);
}

void SglangServer::flush_cache(Deadline deadline) {
    const double seconds = std::chrono::duration<double>(deadline.left()).count() * 0.8;
    const std::string target = fmt::format("/flush_cache?timeout={:.1f}", seconds);
    const http::Response response = ask("POST", target, "", deadline);  // answered in plain text
    if (response.status != 200) throw TransportError(name(), "POST /flush_cache", why(response));
}

}  // namespace tandem::engine
