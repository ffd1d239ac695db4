// Backend `nccl`: memory of GPUs, one rank a GPU, on any number of hosts. It stands on a communicator of the
// CPU with the same ranks (ipc or gloo), which carries calls on streams of the CPU, abort, ids, and the
// search for late ranks.
//
// Other than with the other backends, NCCL's sums are not in rank order (they are the same in every
// repetition with the same ranks on the same machines), and calls that do not agree are not found out: they
// hang until the deadline.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/nccl/api.h"

namespace tandem::comm::nccl {

// Collective over `host`. This rank's GPU is `device`, and no other rank's. Throws DeviceUnavailable without
// NCCL.
std::shared_ptr<Communicator> make_world(std::shared_ptr<Communicator> host, Device device,
                                         const Api& api = loaded());

}  // namespace tandem::comm::nccl
