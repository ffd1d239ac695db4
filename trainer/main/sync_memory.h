// Memory that a sync takes beside the shards, known before any session exists: for the prediction of a run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "common/model/model_config.h"
#include "trainer/config/config.h"

namespace tandem::trainer {

// Most of what the measurement of the speed of light copies a side and rank: on a GPU far more than its cache
// holds (an eighth of what is free there, at most 1 GiB).
constexpr std::size_t speed_of_light_bytes(bool on_gpu, std::uint64_t free_bytes) {
    constexpr std::uint64_t kLeast = std::uint64_t{64} << 20, kMost = std::uint64_t{1} << 30;
    return on_gpu ? std::clamp(free_bytes / 8, kLeast, kMost) : kLeast;
}

// The needs of the sync's mode, as the session will choose them.
struct SyncNeeds {
    bool from_gpu = false;  // the weights stay on the GPU on their way
    int slots = 0;          // of staging, on rank 0
    std::size_t bucket_bytes = 0;
    int arena_copies = 0;     // of the engine's weights, on rank 0
    bool keeps_base = false;  // each rank keeps what it pushed last
};

// Bytes by tag on rank 0, or on another rank.
std::map<std::string, std::int64_t> sync_memory(const RunConfig& config, const model::ModelConfig& model,
                                                const SyncNeeds& needs, bool on_rank_0);

}  // namespace tandem::trainer
