// How the ranks of one communicator of the emulated NCCL reach each other: over sockets between processes, or
// through the memory of one process between its threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace tandem::comm::nccl::stand_in {

// One message, to or from a peer.
struct Transfer {
    int peer = 0;
    std::byte* data = nullptr;  // where the host finds it; not written when sending
    std::size_t bytes = 0;
    bool sending = false;
    int collective = 0;  // the number of the collective that it is part of; 0: of none
};

class Carrier {
  public:
    virtual ~Carrier() = default;  // after abort(), or when nothing moves
    virtual bool joined() = 0;     // all ranks have come
    // Blocks until all have been moved, those to one peer in their order, those from one peer in theirs, and
    // otherwise side by side, so that no order of sends and receives holds up another. False: aborted
    // meanwhile. As over NVLink a lost peer is not noticed: a rank that waits for it waits until an abort.
    virtual bool move(const std::vector<Transfer>& transfers) = 0;
    virtual void abort() = 0;  // ends every wait
};

// Both throw SystemError. `id`: the communicator's.
std::shared_ptr<Carrier> over_sockets(const std::string& id, int rank, int size);
std::shared_ptr<Carrier> over_threads(const std::string& id, int rank, int size);

}  // namespace tandem::comm::nccl::stand_in
