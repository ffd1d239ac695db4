// One trainer rank: builds the policy on the mesh, joins it with the engine and runs the loop. Every rank of
// the job runs this; rank 0 also writes metrics, summary and checkpoint.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/comm/communicator.h"
#include "trainer/config/config.h"
#include "trainer/loop/loop.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {

// The way from the policy to the engine, which the trainer does not know: trainer/main joins the two.
class SyncPort {
  public:
    virtual ~SyncPort() = default;
    virtual SyncTimes publish(std::int64_t version) = 0;  // collective
    // Collective. None: the engine cannot say what it holds.
    virtual std::optional<bool> weights_match() = 0;
    virtual const std::map<std::string, std::int64_t>& memory() const = 0;  // bytes by tag, of rank 0
};
using ConnectSync =
    std::function<std::unique_ptr<SyncPort>(std::shared_ptr<comm::Communicator> world, const Policy& policy,
                                            const std::string& engine_url, const RunConfig& config)>;

// Collective over `world`. Throws when anything fails, Error when the engine's weights are not the trainer's
// at the end.
void run_rank(const RunConfig& config, const config::Schema& schema,
              const std::shared_ptr<comm::Communicator>& world, const std::string& run_directory,
              const std::string& engine_url, const ConnectSync& connect_sync);

}  // namespace tandem::trainer
