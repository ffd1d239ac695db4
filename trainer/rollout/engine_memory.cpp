#include "trainer/rollout/engine_memory.h"

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/access.h"
#include "trainer/config/engine_url.h"

namespace tandem::trainer {
namespace {

constexpr const char* kFlush = "/flush_cache?timeout=10";
constexpr const char* kRelease = "/release_memory_occupation";
constexpr const char* kResume = "/resume_memory_occupation";

}  // namespace

EngineMemory::EngineMemory(const std::string& url, const std::string& level,
                           std::chrono::nanoseconds deadline)
    : others_(engine_of_others(url)), weights_(level == "all"), deadline_(deadline) {
    if (level == "none") return;
    const char* key = others_ ? "SGLANG_API_KEY" : "TANDEM_API_KEY";
    client_ = std::make_unique<http::Client>(http_url(url), http::key_from_environment(key));
    if (others_) check_server();
}

// One that was started without answers 200, and keeps its memory.
void EngineMemory::check_server() {
    const nlohmann::json info = client_->get_json("/server_info", Deadline::after(deadline_));
    if (info.is_object() && info.value("enable_memory_saver", false)) return;
    throw Error(
        fmt::format("{}: it would not release its memory (memory.engine_sleep): start the server with "
                    "--enable-memory-saver",
                    client_->url()));
}

void EngineMemory::ask(const char* target, const char* tag) {
    post(target, nlohmann::json{{"tags", {tag}}}.dump());
}

void EngineMemory::post(const std::string& target, const std::string& body) {
    const http::Response answer = client_->request("POST", target, body, Deadline::after(deadline_));
    if (answer.status != 200) {
        throw TransportError("the engine " + client_->url(), target,
                             fmt::format("status {}: {}", answer.status, answer.body));
    }
}

void EngineMemory::sleep() {
    if (!client_ || asleep_) return;
    // SGLang ends where a request that it has answered is not put away yet: this waits for it.
    if (others_) post(kFlush, "");
    ask(kRelease, "kv_cache");
    if (weights_) ask(kRelease, "weights");
    asleep_ = true;
}

void EngineMemory::wake_weights() {
    if (client_ && asleep_ && weights_) ask(kResume, "weights");
}

void EngineMemory::wake_cache() {
    if (client_ && asleep_) ask(kResume, "kv_cache");
    asleep_ = false;
}

}  // namespace tandem::trainer
