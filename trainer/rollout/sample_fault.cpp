#include "trainer/rollout/sample_fault.h"

#include <fmt/core.h>

#include <algorithm>

namespace tandem::trainer {

std::string text_of(const std::vector<SampleFault>& faults) {
    constexpr std::size_t kNamed = 4;
    struct Prompt {
        const SampleFault* first;
        int samples;
    };
    std::vector<Prompt> prompts;
    for (const SampleFault& fault : faults) {
        const auto known = std::find_if(prompts.begin(), prompts.end(), [&](const Prompt& prompt) {
            return prompt.first->sample == fault.sample;
        });
        if (known != prompts.end())
            ++known->samples;
        else
            prompts.push_back({&fault, 1});
    }
    std::string text;
    for (std::size_t i = 0; i < std::min(prompts.size(), kNamed); ++i) {
        const auto& [first, samples] = prompts[i];
        text += fmt::format("{}{} ({}{})", i > 0 ? ", " : "", first->sample, first->what,
                            samples > 1 ? fmt::format("; {} samples", samples) : "");
    }
    if (prompts.size() > kNamed) text += fmt::format(" and {} more", prompts.size() - kNamed);
    return text;
}

}  // namespace tandem::trainer
