// The trainer's handle of an engine that runs a Receiver.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine_adapter/engine.h"
#include "engine_adapter/transport/nccl/group.h"

namespace tandem::engine {

// How generation is stopped and let go on; a receiver alone cannot.
class GenerationControl {
  public:
    virtual ~GenerationControl() = default;
    virtual void pause(Deadline deadline) = 0;
    virtual void resume(Deadline deadline) = 0;
};

// An engine by its URL ("http://127.0.0.1:30000"): GET /model_info names its receiver, POST /pause_generation
// and /continue_generation stop it and let it go on. Throws TransportError when nothing answers or it runs no
// receiver.
std::unique_ptr<Engine> connect_tandem(const std::string& url, Deadline deadline);

// A receiver by its address ("unix-abstract:NAME"). Without `control`, pause and resume do nothing.
std::unique_ptr<Engine> connect_receiver(const std::string& address, Deadline deadline,
                                         std::unique_ptr<GenerationControl> control = nullptr);

// Several engine ranks that take buckets over one NCCL group: this process is its rank 0, engine rank i rank
// 1 + i. Each needs a GPU of its own. The group is formed when the first of them is attached. They cannot
// read weights in place, and take only memory of this process.
std::vector<std::unique_ptr<Engine>> connect_over_nccl(const std::vector<std::string>& addresses,
                                                       const NcclOptions& options, Deadline deadline);

// One engine by its URL, which is the only engine rank of its group.
std::unique_ptr<Engine> connect_tandem_over_nccl(const std::string& url, const NcclOptions& options,
                                                 Deadline deadline);

}  // namespace tandem::engine
