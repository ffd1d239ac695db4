// The meeting of ranks that another launcher has started: through a TCP store that rank 0 keeps at
// MASTER_ADDR:MASTER_PORT until all have met. Each says on which host it is, which decides the backend that
// joins them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/comm/communicator.h"
#include "common/comm/job_secret.h"
#include "common/comm/launch.h"

namespace tandem::comm {

struct Rendezvous {
    RankEnvironment self;
    std::string host;  // where rank 0 listens
    int port = 0;
    std::string backend;  // TANDEM_COMM: "auto", "ipc" or "gloo"; the same on all ranks
    std::optional<JobSecret> secret = std::nullopt;  // TANDEM_JOB_SECRET: only who knows it takes part
};

// The world communicator. Throws naming the ranks that did not come by the deadline.
std::shared_ptr<Communicator> meet(const Rendezvous& rendezvous, Deadline deadline);

}  // namespace tandem::comm
