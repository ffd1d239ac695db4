// Memory that engines of this host can open, as a DLPack tensor.
#pragma once

#include <cstddef>
#include <memory>

#include "common/comm/communicator.h"
#include "sync/capi/dlpack.h"

namespace tandem::sync::capi {

// uint8 [bytes] of the world's memory, and the world with it, until the deleter is called. Throws OutOfMemory.
dlpack::ManagedVersioned* make_versioned_region(std::shared_ptr<comm::Communicator> world, std::size_t bytes);
dlpack::Managed* make_region(std::shared_ptr<comm::Communicator> world, std::size_t bytes);

}  // namespace tandem::sync::capi
