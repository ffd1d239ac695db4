// Backend `gloo`: CPU ranks on any number of hosts, over TCP.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/gloo/address.h"
#include "common/deadline.h"
#include "common/store/store.h"

namespace tandem::comm::gloo {

// The world communicator of this rank. Collective: all ranks of the store come, and none needs the store
// once all have returned. Throws naming the ranks that did not come or could not be reached.
std::shared_ptr<Communicator> make_world(Store& store, int rank, int size, const ListenAddress& address,
                                         Deadline deadline);

}  // namespace tandem::comm::gloo
