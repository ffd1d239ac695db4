#include "engine_adapter/http_api/pending_call.h"

#include <chrono>
#include <utility>

#include "common/thread.h"

namespace tandem::engine {

PendingCall::PendingCall(std::function<void()> call) : ended_(start_call("for a request", std::move(call))) {}

bool PendingCall::check() {
    if (!ended_.valid()) return true;
    if (ended_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    ended_.get();
    return true;
}

void PendingCall::wait() {
    if (ended_.valid()) ended_.get();
}

}  // namespace tandem::engine
