// A communicator for memory of a GPU, dressed as one for host memory: each call takes its data to the GPU,
// runs there, and brings the results back. So every check of the contract holds on a GPU too. Its memory() is
// host memory that stands for memory(device); other host memory stands for device_pool().
#pragma once

#include <memory>

#include "common/comm/communicator.h"

namespace tandem::comm::contract {

std::shared_ptr<Communicator> on_gpu(std::shared_ptr<Communicator> inner, Device device);

}  // namespace tandem::comm::contract
