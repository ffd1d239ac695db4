// What a running server says after fixed prompts, and how likely it finds that: a question that servers of every kind
// answer, and whose answer depends on all of their weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "engine_adapter/connect.h"

namespace tandem::engine {

using Prompts = std::vector<std::vector<std::int32_t>>;

// After one prompt.
struct Continuation {
    std::vector<std::int32_t> tokens;
    std::vector<double> log_probs;  // of each, of softmax(logits)
};

// Greedy, `length` tokens after each prompt, whatever ends a sequence. Blocks while the server is paused. Throws BadInput:
// a name without an HTTP server (connect.h); TransportError naming URL and route, DeadlineExceeded.
std::vector<Continuation> ask_continuations(const std::string& name, const Prompts& prompts,
                                            std::int64_t length, Deadline deadline,
                                            const ConnectOptions& options = {});

}  // namespace tandem::engine
