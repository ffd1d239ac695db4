// Joins a rank's policy with the engine through a sync session.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "trainer/run/rank.h"

namespace tandem::trainer {

// Rank 0 connects to the engine at `engine_url`, and the speed of light that SyncTimes tells of is measured: no publish
// waits for that. Collective. Throws Error when sync.transport names one that cannot take the weights from where they
// are.
std::unique_ptr<SyncPort> connect_sync(std::shared_ptr<comm::Communicator> world, const Policy& policy,
                                       const std::string& engine_url, const RunConfig& config);

// The bytes by tag that the session will hold on rank 0, before there is one. The buckets that the cost model
// chooses for this machine may differ from the defaults that are assumed here.
std::map<std::string, std::int64_t> memory_of_sync(const RunConfig& config, const model::ModelConfig& model,
                                                   bool on_rank_0);

}  // namespace tandem::trainer
