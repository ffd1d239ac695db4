// NCCL of the emulated GPUs: what the processes of a weight transfer ask of it, a broadcast, sends and
// receives, and the sum of a few floats. It keeps NCCL's rules that callers can trip over: init waits for all ranks, calls are collected
// from group start to group end and run on their stream, and wait there for the peers' until the communicator
// is aborted. How ranks reach each other is a Carrier's matter. A test that wants more of NCCL, or an NCCL
// that fails, builds on the same calls (tests/unit/common/comm/fake_nccl.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/nccl/api.h"
#include "tests/emulated_gpu/carrier.h"

struct ncclComm {
    virtual ~ncclComm() = default;
    int rank = 0;
    int size = 0;
    std::shared_ptr<tandem::comm::nccl::stand_in::Carrier> carrier;  // lives on with work that is under way
};

namespace tandem::comm::nccl::stand_in {

struct Call {
    Comm comm = nullptr;
    Stream* stream = nullptr;
    std::vector<Transfer> transfers;
    std::function<void()> finish =
        {};  // on the stream, when all transfers of the launch are over; may be empty
};

// The table over sockets, which the emulated GPU registers.
const Api& api();

std::string text_of(const UniqueId& id);
// Adds the call to the calling thread's group; outside of a group it is a launch of its own.
Result add(Call call);
const std::vector<Call>& pending();  // of the calling thread's group

}  // namespace tandem::comm::nccl::stand_in
