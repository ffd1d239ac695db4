// Checks a run's configuration of its sync against sync's table of modes (sync/session/modes.h).
#pragma once

#include <string>

#include "common/comm/communicator.h"
#include "engine_adapter/engine.h"
#include "sync/session/modes.h"
#include "trainer/config/config.h"

namespace tandem::trainer {

sync::Mode sync_mode(const RunConfig& config);
// True when trainer ranks are on a GPU and their weights stay there on the way to the engine.
bool syncs_from_gpu(const RunConfig& config);

// Throw ConfigError naming the key: memory.engine_sleep; sync.mode, sync.transport and sync.nccl_form on
// run.device. The second one looks at this machine's GPUs.
void check_sync_memory(const RunConfig& config, const config::Schema& schema);
void check_sync(const RunConfig& config, const config::Schema& schema);

// Why a GPU's weights go to the engine through the host's memory; empty: they do not. `engine` is rank 0's,
// none elsewhere. Collective.
std::string detour(comm::Communicator& world, Device weights, const engine::Engine* engine,
                   const RunConfig& config);

}  // namespace tandem::trainer
