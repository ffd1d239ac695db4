#include "trainer/rollout/sleep_by_tags.h"

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

SleepByTags::SleepByTags(const std::string& url, bool weights, std::chrono::nanoseconds deadline)
    : others_(is_third_party(url)),
      weights_(weights),
      deadline_(deadline),
      client_(http_url(url), http::key_from_environment(others_ ? "SGLANG_API_KEY" : "TANDEM_API_KEY")) {
    if (others_) check_server();
}

// One that was started without answers 200, and keeps its memory.
void SleepByTags::check_server() {
    const nlohmann::json info = client_.get_json("/server_info", Deadline::after(deadline_));
    if (info.is_object() && info.value("enable_memory_saver", false)) return;
    throw Error(
        fmt::format("{}: it would not release its memory (memory.engine_sleep): start the server with "
                    "--enable-memory-saver",
                    client_.url()));
}

void SleepByTags::ask(const char* target, const char* tag) {
    post(target, nlohmann::json{{"tags", {tag}}}.dump());
}

void SleepByTags::post(const std::string& target, const std::string& body) {
    const http::Response answer = client_.request("POST", target, body, Deadline::after(deadline_));
    if (answer.status != 200) {
        throw TransportError("the engine " + client_.url(), target,
                             fmt::format("status {}: {}", answer.status, answer.body));
    }
}

bool SleepByTags::sleep() {
    // SGLang ends where a request that it has answered is not put away yet: this waits for it.
    if (others_) post(kFlush, "");
    ask(kRelease, "kv_cache");
    if (weights_) ask(kRelease, "weights");
    return true;
}

void SleepByTags::wake_weights() {
    if (weights_) ask(kResume, "weights");
}

void SleepByTags::wake_cache() {
    ask(kResume, "kv_cache");
}

}  // namespace tandem::trainer
