// The engine's side of a sync: listens for one trainer at a time, lays buckets into the engine's weights,
// verifies every entry's checksum while copying, and commits a version whole or aborts it. Runs in a thread
// of its own; copies with a few more. It never pauses generation itself: the trainer does that over the
// engine's HTTP routes first.
//
//   the trainer ...                       and the receiver ...
//   begins a version                      target.begin_update; errors of the target go back to the trainer
//   sends a bucket that is not valid      answers an error; the update is aborted (dirty when anything was
//   copied) sends a bucket with a wrong checksum  answers an error naming tensor, rank, bucket;
//   target.abort_update(.., dirty) commits, all bytes once, manifest ok  target.commit_update goes away in
//   the middle               target.abort_update sends what no message looks like      answers an error,
//   closes the connection, aborts an open update
#pragma once

#include <memory>
#include <string>

#include "engine_adapter/receiver/weight_target.h"

namespace tandem::engine {

struct ReceiverOptions {
    std::string engine = "tandem";  // Capabilities::engine
    int depth = 4;                  // Capabilities::depth
    int copy_threads = 0;           // threads that copy one bucket; 0: the machine's cores, at most 4
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
    // what connect_receiver (receiver/client.h) takes. The name vanishes with the process.
    const std::string& address() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::engine
