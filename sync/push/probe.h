// A semantic check of a push that works for every server: what it says after fixed prompts, and how likely it finds that,
// against what the pushed weights say. It tells weights that are not the pushed ones from weights that are, where they
// differ by more than the arithmetic of two programs does.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/tensor/dtype.h"

namespace tandem::sync {

using Prompts = std::vector<std::vector<std::int32_t>>;

// After one prompt, greedily.
struct Said {
    std::vector<std::int32_t> tokens;
    std::vector<double> log_probs;  // of each
};

// The same in every run: 16 prompts of 8 tokens below `vocabulary`, and as many tokens after each.
Prompts probe_prompts(std::int64_t vocabulary);
inline constexpr std::int64_t kProbeTokens = 4;

struct Probe {
    // May be called from any thread. What a server says; throws what asking throws.
    std::function<std::vector<Said>(const std::string& url, Deadline deadline)> ask;
    // What the pushed weights say where they are computed in a dtype.
    std::function<std::vector<Said>(DType dtype)> expected;
};

// By how much log-probs differ, up to and with the first token of each prompt that does.
struct Apart {
    double most = 0;
    double mean = 0;
};
Apart apart(const std::vector<Said>& found, const std::vector<Said>& expected);

// How far a server's answers may be from the expected ones: the largest difference in float32, their mean in bfloat16,
// where single log-probs of two programs differ by a lot.
struct ProbeReport {
    DType dtype = DType::float32;
    std::optional<Apart> before;  // absent: it did not answer
    std::optional<Apart> after;   // absent: not pushed, or it did not answer

    double limit() const { return dtype == DType::float32 ? 1e-3 : 0.15; }
    double measured(const Apart& apart) const { return dtype == DType::float32 ? apart.most : apart.mean; }
    bool holds() const { return after && measured(*after) <= limit(); }
    // "probe: log-probs differ from the pushed weights' by 2e-06 at most (0.001 is allowed; 3.3 before)"
    std::string text() const;
    nlohmann::json json() const;
};

}  // namespace tandem::sync
