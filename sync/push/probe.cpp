#include "sync/push/probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/error.h"

namespace tandem::sync {

Prompts probe_prompts(std::int64_t vocabulary) {
    constexpr std::size_t kPrompts = 16;
    constexpr std::size_t kLength = 8;
    std::uint64_t state = 1;
    Prompts prompts(kPrompts, std::vector<std::int32_t>(kLength));
    for (std::vector<std::int32_t>& prompt : prompts) {
        for (std::int32_t& token : prompt) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            token = static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(vocabulary));
        }
    }
    return prompts;
}

Apart apart(const std::vector<Said>& found, const std::vector<Said>& expected) {
    enforce(found.size() == expected.size(), "{} answers to {} prompts", found.size(), expected.size());
    Apart apart;
    std::size_t compared = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        const std::size_t tokens = std::min(found[i].tokens.size(), expected[i].tokens.size());
        for (std::size_t t = 0; t < tokens; ++t) {
            const double difference = std::abs(found[i].log_probs.at(t) - expected[i].log_probs.at(t));
            // A comparison with what is no number fails.
            apart.most = std::isnan(difference) ? INFINITY : std::max(apart.most, difference);
            apart.mean += std::isnan(difference) ? INFINITY : difference;
            ++compared;
            if (found[i].tokens[t] != expected[i].tokens[t]) break;
        }
    }
    enforce(compared > 0, "no token was answered");
    apart.mean /= static_cast<double>(compared);
    return apart;
}

std::string ProbeReport::text() const {
    const std::optional<Apart>& newest = after ? after : before;
    if (!newest) return "probe: it did not answer";
    const std::string earlier = !after   ? "before the push"
                                : before ? fmt::format("{:.2g} before", measured(*before))
                                         : "no answer before";
    return fmt::format(
        "probe: log-probs differ from the pushed weights' by {:.2g} {} ({:.2g} is allowed; {})",
        measured(*newest), dtype == DType::float32 ? "at most" : "in the mean", limit(), earlier);
}

nlohmann::json ProbeReport::json() const {
    const auto of = [](const std::optional<Apart>& apart) -> nlohmann::json {
        if (!apart) return nullptr;
        return {{"most", apart->most}, {"mean", apart->mean}};
    };
    return {{"dtype", dtype_name(dtype)}, {"measure", dtype == DType::float32 ? "most" : "mean"},
            {"limit", limit()},           {"before", of(before)},
            {"after", of(after)},         {"holds", holds()}};
}

}  // namespace tandem::sync
