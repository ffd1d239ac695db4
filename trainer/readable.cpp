#include "trainer/readable.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tandem::trainer {

std::vector<nlohmann::ordered_json> readable_samples(const Task& task, const Rollout& rollout,
                                                     std::int64_t count) {
    std::vector<nlohmann::ordered_json> result;
    const std::size_t all = rollout.ids.size();
    const std::size_t kept = std::min(all, static_cast<std::size_t>(count));
    for (std::size_t k = 0; k < kept; ++k) {
        const std::size_t i = k * all / kept;
        const Completion& completion = rollout.completions[i];
        nlohmann::ordered_json line{{"prompt", task.text(rollout.prompts[i])},
                                    {"completion", task.text(completion.tokens)},
                                    {"reward", rollout.rewards[i]},
                                    {"tokens", completion.tokens.size()},
                                    {"truncated", completion.truncated},
                                    {"weight_version", completion.weight_version}};
        if (const std::string expected = task.expected(rollout.ids[i]); !expected.empty())
            line["expected"] = expected;
        result.push_back(std::move(line));
    }
    return result;
}

}  // namespace tandem::trainer
