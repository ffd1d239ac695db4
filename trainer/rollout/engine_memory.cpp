#include "trainer/rollout/engine_memory.h"

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/access.h"

namespace tandem::trainer {
namespace {

constexpr const char* kRelease = "/release_memory_occupation";
constexpr const char* kResume = "/resume_memory_occupation";

}  // namespace

EngineMemory::EngineMemory(const std::string& url, const std::string& level,
                           std::chrono::nanoseconds deadline)
    : client_(level == "none" ? nullptr : std::make_unique<http::Client>(url, http::key_from_environment())),
      weights_(level == "all"),
      deadline_(deadline) {}

void EngineMemory::ask(const char* target, const char* tag) {
    const nlohmann::json body{{"tags", {tag}}};
    const http::Response answer = client_->request("POST", target, body.dump(), Deadline::after(deadline_));
    if (answer.status != 200) {
        throw TransportError("the engine " + client_->url(), target,
                             fmt::format("status {}: {}", answer.status, answer.body));
    }
}

void EngineMemory::sleep() {
    if (!client_ || asleep_) return;
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
