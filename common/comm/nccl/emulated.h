// NCCL of the emulated GPUs (common/device/emulated.h): what the processes of a weight transfer ask of it, a
// broadcast, sends and receives, between processes or threads of one host, by messages over sockets. It keeps
// NCCL's rules that callers can trip over: init waits for all ranks, calls are launched at group end and run
// on their stream, and wait there for a lost peer until the communicator is aborted.
#pragma once

#include "common/comm/nccl/api.h"
#include "common/device/device.h"

namespace tandem::comm::nccl {

const Api& emulated_api();

// The library's, or the emulated one for an emulated GPU. Throws DeviceUnavailable.
const Api& api_for(Device device);

}  // namespace tandem::comm::nccl
