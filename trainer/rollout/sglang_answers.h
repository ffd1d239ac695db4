// What a server answers to SGLang's POST /generate with a list of prompts, as completions. Pure: the answer is a peer's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "trainer/rollout/client.h"

namespace tandem::trainer {

// One completion a prompt, of which only `aborted` is set where it was. Throws std::exception: what is wrong with which
// answer, or that another weight version than `version` made some of its tokens.
std::vector<Completion> sglang_answers(const nlohmann::json& answers, std::size_t prompts,
                                       const Sampling& sampling, std::int64_t version);

}  // namespace tandem::trainer
