// Questions that running servers of every kind answer: what they say after fixed prompts, and how likely they find that,
// which depends on all of their weights; and who they are.
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
// a name without an HTTP server (connect.h); TransportError naming URL and route, DeadlineExceeded. A vLLM that is paused to
// the deadline is a TransportError, too, where it answers that (since 0.33).
std::vector<Continuation> ask_continuations(const std::string& name, const Prompts& prompts,
                                            std::int64_t length, Deadline deadline,
                                            const ConnectOptions& options = {});

struct ServerState {
    // Another one after each start of the server's process; empty: it does not say (vLLM before 0.32).
    std::string incarnation;
    std::int64_t version = 0;  // of its weights, as it says it; 0: none that a push brought
};

// Throws as ask_continuations.
ServerState ask_state(const std::string& name, Deadline deadline, const ConnectOptions& options = {});

}  // namespace tandem::engine
