// Questions to a server that takes none for now: vLLM keeps what arrives while it is paused until it goes on (0.32), or
// answers 503 (0.33). A client that asks by these need not know which.
#pragma once

#include <atomic>
#include <functional>

#include "common/deadline.h"
#include "common/http/client.h"

namespace tandem::http {

constexpr int kUnavailable = 503;

// Calls `ask` until its answer is no 503, ever more rarely; its last answer, where the deadline passes first or somebody
// sets `stop`. Throws what it throws.
Response ask_until_available(const std::function<Response()>& ask, Deadline deadline,
                             const std::atomic<bool>* stop = nullptr);

}  // namespace tandem::http
