// The engine's side of a sync: listens for one trainer at a time, copies each version's bytes out of the
// trainer's memory, verifies every checksum on the way, and commits a version whole or aborts it: mixed
// weights are never served. Runs in a thread of its own; copies with a few more. The trainer comes over a Unix socket,
// or over TCP (transport/tcp/handshake.h) from any host.
//
//   the trainer                                   the receiver
//   attaches regions and a plan                   maps them read-only; checks the plan once
//   pauses                                        target.pause
//   begins a version                              target.begin_update
//   loads a bucket                                copies it and compares checksums
//   loads one with a wrong checksum               answers an error naming tensor, rank and bucket; aborts
//   loads one twice, or of an unknown number      answers an error; aborts
//   commits, all buckets there, manifest equal    target.commit_update (after adopt: first point_weights)
//   commits otherwise                             answers an error; aborts
//   resumes                                       target.resume
//   asks for what the state does not allow        answers an error
//   closes the connection                         ends the push, unmaps the regions
//   says nothing for its lease, in a push         closes the connection, likewise
//   likewise between pushes                       keeps it until another trainer connects
//   says no hello after it connected              closes the connection
//   sends bytes that are no message               answers an error, closes the connection, aborts
//
// A push that ends before it is over: push_state.h.
// Errors of the target go back to the trainer too.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "common/comm/nccl/api.h"
#include "engine_adapter/receiver/weight_target.h"
#include "engine_adapter/transport/tcp/listener.h"

namespace tandem::engine {

struct ReceiverOptions {
    std::string engine = "tandem";  // Capabilities::engine
    int depth = 4;                  // Capabilities::depth
    int copy_threads = 0;           // threads that copy one bucket; 0: the machine's cores, at most 4
    std::chrono::milliseconds greeting{10'000};  // for the first request of a trainer
    const comm::nccl::Api* nccl = nullptr;       // its functions; null: as they are found when first needed
    std::optional<TcpListen> data_plane = {};    // where trainers of other hosts come, and bytes over TCP
};

class Receiver {
  public:
    // Starts listening. `target` must outlive the receiver.
    explicit Receiver(WeightTarget& target, ReceiverOptions options = {});
    // Stops within the copy of one bucket; an open update is aborted.
    ~Receiver();
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;

    // "unix-abstract:tandem-PID-RANDOM": what GET /model_info answers under "tandem": {"receiver": …}, and
    // what connect (engine_adapter/connect.h) takes. The name vanishes with the process.
    const std::string& address() const;
    int data_port() const;  // of the data plane; 0: none

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::engine
