// The meeting of ranks that another launcher has started: through a TCP store that rank 0 keeps at
// MASTER_ADDR:MASTER_PORT until all have met. Each says on which host it is, which decides the backend that
// joins them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/launch.h"
#include "common/identity/job_secret.h"

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

// What a launcher's own library offers in the place of a store: gives this rank's text to all ranks and returns theirs,
// by rank. Collective; throws what it likes when a rank does not come.
using AllGather = std::function<std::vector<std::string>(const std::string& mine)>;

// The same over that: backend ipc on one host, by memory that rank 0 announces; else (and with TANDEM_COMM=gloo) gloo, by
// a store at MASTER_ADDR or rank 0's host name, with a secret that only these ranks are told. A rank that fails is told to
// all: they throw alike, naming it.
std::shared_ptr<Communicator> meet(const AllGather& all_gather, int rank, int size, Deadline deadline);

}  // namespace tandem::comm
