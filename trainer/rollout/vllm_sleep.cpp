#include "trainer/rollout/vllm_sleep.h"

#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <system_error>

#include "common/error.h"
#include "common/http/access.h"
#include "common/http/metrics.h"
#include "common/log.h"
#include "trainer/config/engine_url.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

constexpr const char* kLoading = "loading ";  // as a push says it: engine_adapter/http_api/weight_version.h
constexpr const char* kReleaseCache = "/release_kv_cache_memory";

// What a server was started with, or said last.
json at(const json& answer, const char* where) {
    const json::json_pointer pointer(where);
    return answer.is_object() && answer.contains(pointer) ? answer[pointer] : json();
}

// 0: a text of somebody else's.
std::int64_t number_of(const std::string& version) {
    std::int64_t number = 0;
    const char* const end = version.data() + version.size();
    const auto [stop, error] = std::from_chars(version.data(), end, number);
    return error == std::errc() && stop == end ? number : 0;
}

}  // namespace

VllmSleep::VllmSleep(const std::string& url, bool weights, std::chrono::nanoseconds deadline)
    : client_(http_url(url), http::key_from_environment("VLLM_API_KEY")),
      weights_(weights),
      deadline_(deadline) {
    check_server();
}

// One that was started without answers 200, and keeps its memory.
void VllmSleep::check_server() {
    const json info = client_.get_json("/server_info?config_format=json", soon());
    if (at(info, "/vllm_config/model_config/enable_sleep_mode") != true) {
        throw Error(
            fmt::format("{}: it would not release its memory (memory.engine_sleep): start the server with "
                        "--enable-sleep-mode",
                        client_.url()));
    }
    keeps_weights_ = at(info, "/vllm_config/weight_transfer_config/backend") == "sparse_nccl";
    const http::Response metrics = client_.request("GET", "/metrics", "", soon());
    const auto awake = metrics.status != 200 ? std::nullopt
                                             : http::metric_value(metrics.body, "vllm:engine_sleep_state",
                                                                  "sleep_state=\"awake\"");
    if (!awake) {
        throw Error(
            fmt::format("{}: GET /metrics does not say whether it sleeps (memory.engine_sleep): start the "
                        "server without --disable-log-stats",
                        client_.url()));
    }
    asleep_ = *awake == 0 && is_paused();
    if (asleep_) log_info("{} was left asleep: the first sync wakes it", client_.url());
}

void VllmSleep::check(const std::string& target, const http::Response& answer) const {
    if (answer.status == 200) return;
    throw TransportError("the engine " + client_.url(), target,
                         fmt::format("status {}: {}", answer.status, answer.body));
}

void VllmSleep::post(const std::string& target) {
    check(target, client_.request("POST", target, "", soon()));
}

bool VllmSleep::is_paused() {
    return at(client_.get_json("/is_paused", soon()), "/is_paused") == true;
}

std::string VllmSleep::weight_version() {
    const json version = at(client_.get_json("/weight_info", soon()), "/weight_version");
    return version.is_string() ? version.get<std::string>() : "";
}

void VllmSleep::set_weight_version(const std::string& version) {
    client_.post_json("/update_weight_version", {{"new_version", version}}, soon());
}

// Where it throws, the server may have been left paused or asleep: waking it too early would be worse.
bool VllmSleep::sleep() {
    if (is_paused()) {
        log_warn("{} is paused by somebody else, and keeps its memory", client_.url());
        return false;
    }
    if (!weights_) {
        release_cache();
    } else if (keeps_weights_) {
        post("/sleep?level=1&mode=wait");
    } else {
        drop_weights();
    }
    return true;
}

void VllmSleep::release_cache() {
    post("/pause?mode=wait");
    const http::Response answer = client_.request("POST", kReleaseCache, "", soon());
    if (answer.status != 200) post("/resume");  // it has kept it
    check(kReleaseCache, answer);
}

// Nobody takes it for whole between the two.
void VllmSleep::drop_weights() {
    const std::string version = weight_version();
    if (!version.starts_with(kLoading)) set_weight_version(kLoading + std::to_string(number_of(version) + 1));
    post("/sleep?level=2&mode=wait");
}

bool VllmSleep::wake(const std::string& tag) {
    const json answer = client_.post_json("/wake_up?tags=" + tag, json(), soon());
    return at(answer, "/status") == "awake";
}

void VllmSleep::wake_weights() {
    if (weights_) wake("weights");
}

void VllmSleep::wake_cache() {
    if (wake("kv_cache")) return;
    throw TransportError("the engine " + client_.url(), "/wake_up",
                         "it still sleeps with its cache awake: somebody else put more of it to sleep (POST "
                         "/wake_up wakes all)");
}

}  // namespace tandem::trainer
