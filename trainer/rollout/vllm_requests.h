// The two routes of vLLM that take and give token ids, as bodies and answers. A request carries one prompt: a batch of
// them would share one seed. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "trainer/rollout/client.h"

namespace tandem::trainer {

enum class VllmRoute : std::uint8_t {
    generate,    // /inference/v1/generate, where the server was started with --enable-scale-out
    completions  // /v1/completions, which every server has and which says the weight version since 0.33
};
const char* target_of(VllmRoute route);

nlohmann::json vllm_request(VllmRoute route, std::span<const std::int32_t> prompt, std::uint64_t seed,
                            const Sampling& sampling);

struct VllmAnswer {
    Completion completion;  // weight_version is not set; where it is aborted nothing else is
    std::optional<std::string> weight_version;  // where the answer says it
};
// Throws std::exception: what is wrong with it.
VllmAnswer vllm_answer(VllmRoute route, const nlohmann::json& answer);

}  // namespace tandem::trainer
