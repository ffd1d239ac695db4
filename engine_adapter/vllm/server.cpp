#include "engine_adapter/vllm/server.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/metrics.h"
#include "common/json_text.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

double seconds_left(Deadline deadline) {
    return std::chrono::duration<double>(deadline.left()).count();
}

}  // namespace

VllmServer::VllmServer(const std::string& name, const std::string& key)
    : HttpApi(name, key,
              {"VLLM_API_KEY",
               "the route is there in development mode: start the server with VLLM_SERVER_DEV_MODE=1"}) {}

bool VllmServer::is_paused(Deadline deadline) {
    const json answer = get("/is_paused", deadline);
    if (!answer.is_object() || !answer.contains("is_paused") || !answer["is_paused"].is_boolean())
        throw TransportError(name(), "GET /is_paused", "the answer has no \"is_paused\"");
    return answer["is_paused"].get<bool>();
}

void VllmServer::pause(InFlight running, Deadline deadline) {
    const char* mode = running == InFlight::wait ? "wait" : running == InFlight::abort ? "abort" : "keep";
    try {
        post(std::string("/pause?mode=") + mode, "", deadline);
    } catch (const DeadlineExceeded& error) {
        if (running != InFlight::wait) throw;
        throw DeadlineExceeded(
            name(), error.phase(),
            "its requests had not ended before the deadline; wait longer (--deadline), or end them "
            "(--abort-running)",
            true);
    }
}

void VllmServer::resume(Deadline deadline) {
    post("/resume", "", deadline);
}

VllmSleep VllmServer::sleep(Deadline deadline) {
    const http::Response response = ask("GET", "/metrics", "", deadline);
    if (response.status != 200) return {};
    const auto is = [&](const char* state) {
        return http::metric_value(response.body, "vllm:engine_sleep_state",
                                  fmt::format("sleep_state=\"{}\"", state));
    };
    return {is("awake") == 0.0, is("weights_offloaded") == 1.0 || is("discard_all") == 1.0};
}

bool VllmServer::wake_up(const std::string& tag, Deadline deadline) {
    const json answer = post("/wake_up?tags=" + tag, "", deadline);
    return answer.is_object() && answer.value("status", "") == "awake";
}

void VllmServer::reload_weights(const std::string& directory, Deadline deadline) {
    if (!load_format_.empty()) {
        const json config = {{"load_config", {{"load_format", load_format_}}}};
        call_workers("update_config", {{"overrides", config}}, deadline);
    }
    call_workers("reload_weights", {{"weights_path", directory}}, deadline);
}

json VllmServer::call_workers(const std::string& method, const json& kwargs, Deadline deadline) {
    const json body = {{"method", method}, {"kwargs", kwargs}, {"timeout", seconds_left(deadline)}};
    const json answer = post("/collective_rpc", text_of_json(body), deadline);
    if (!answer.is_object() || !answer.contains("results") || !answer["results"].is_array())
        throw TransportError(name(), "POST /collective_rpc", "the answer has no \"results\"");
    return answer["results"];
}

void VllmServer::init_weight_transfer(const json& info, Deadline deadline) {
    post("/init_weight_transfer_engine", json{{"init_info", info}}.dump(), deadline);
}

void VllmServer::start_weight_update(Deadline deadline) {
    post("/start_weight_update", "", deadline);
}

void VllmServer::update_weights(const json& info, Deadline deadline) {
    post("/update_weights", json{{"update_info", info}}.dump(), deadline);
}

void VllmServer::finish_weight_update(const std::string& version, Deadline deadline) {
    post("/finish_weight_update", json{{"weight_version", version}}.dump(), deadline);
}

void VllmServer::finish_weight_update(Deadline deadline) {
    post("/finish_weight_update", "{}", deadline);
}

void VllmServer::shutdown_weight_transfer(Deadline deadline) {
    post("/shutdown_weight_transfer_engine", "", deadline);
}

std::int64_t VllmServer::world_size(Deadline deadline) {
    const json answer = get("/get_world_size", deadline);
    if (!answer.is_object() || !answer.contains("world_size") || !answer["world_size"].is_number_unsigned())
        throw TransportError(name(), "GET /get_world_size", "the answer has no \"world_size\"");
    return answer["world_size"].get<std::int64_t>();
}

std::string VllmServer::weight_version(Deadline deadline) {
    const json answer = get("/weight_info", deadline);
    if (!answer.is_object() || !answer.contains("weight_version") || !answer["weight_version"].is_string())
        throw TransportError(name(), "GET /weight_info", "the answer has no \"weight_version\"");
    return answer["weight_version"].get<std::string>();
}

void VllmServer::set_weight_version(const std::string& version, Deadline deadline) {
    post("/update_weight_version", json{{"new_version", version}}.dump(), deadline);
}

void VllmServer::reset_prefix_cache(Deadline deadline) {
    const json answer = post("/reset_prefix_cache", "", deadline);
    if (answer.is_object() && answer.contains("success") && answer["success"] == false)
        throw TransportError(name(), "POST /reset_prefix_cache",
                             "the server could not empty its prefix cache");
}

}  // namespace tandem::engine
