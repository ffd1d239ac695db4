// Backend `ipc`: ranks of one host over shared memory, as processes or as threads of one process.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/ipc/job.h"

namespace tandem::comm::ipc {

// The world communicator of rank `rank` of the job. Takes the rank: once in the job's life.
std::shared_ptr<Communicator> make_world(std::shared_ptr<Job> job, int rank);

}  // namespace tandem::comm::ipc
