// Samples that somebody ends at the engine (POST /abort_request, a pause that aborts) are no reason to end a run: they are asked
// for again, and their seeds make them what they would have been.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "trainer/rollout/client.h"

namespace tandem::trainer {

// A completion a prompt, some of which may be aborted.
using AskForSamples = std::function<std::vector<Completion>(
    std::span<const std::vector<std::int32_t>> prompts, std::span<const std::uint64_t> seeds)>;

// `ask` of all, and every 100 ms of those that were aborted. Throws what it throws, and DeadlineExceeded naming the engine.
std::vector<Completion> ask_until_none_is_aborted(const std::string& engine,
                                                  std::span<const std::vector<std::int32_t>> prompts,
                                                  std::span<const std::uint64_t> seeds, Deadline deadline,
                                                  const AskForSamples& ask);

}  // namespace tandem::trainer
