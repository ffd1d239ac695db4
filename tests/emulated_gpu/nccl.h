// NCCL of the emulated GPUs: what the processes of a weight transfer ask of it, a
// broadcast, sends and receives, between processes or threads of one host, by messages over sockets. It keeps
// NCCL's rules that callers can trip over: init waits for all ranks, calls are launched at group end and run
// on their stream, and wait there for a lost peer until the communicator is aborted.
#pragma once

#include "common/comm/nccl/api.h"

namespace tandem::comm::nccl {

const Api& emulated_api();

}  // namespace tandem::comm::nccl
