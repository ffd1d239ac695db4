// An Engine from its name. Each kind of engine is a line of the table in connect.cpp.
//
//   name                 engine
//   http://HOST:PORT     the tandem-engine that serves there (tandem/engine.h)
//   unix:///PATH         the same, at a Unix socket
//   unix-abstract:NAME   a receiver of ours, by its address
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "engine_adapter/engine.h"
#include "engine_adapter/transport/nccl/group.h"

namespace tandem::engine {

struct ConnectOptions {
    // Buckets go over one NCCL group: this process is its rank 0, engine rank i rank 1 + i, each on a GPU of
    // its own. The group is formed when the first engine rank is attached. They cannot read weights in place,
    // and take only memory of this process. Without: the engine maps the trainer's memory.
    std::optional<NcclOptions> nccl = {};
    // For how long this trainer may say nothing while it has an engine paused: then the engine gives it up.
    std::chrono::milliseconds lease{300'000};
    // The first version that is committed need not be above those that the engine has had: a run that counts anew.
    bool rollback = false;
};

// Throws BadInput (no such kind of engine), TransportError (nothing answers there), DeadlineExceeded.
std::unique_ptr<Engine> connect(const std::string& name, Deadline deadline,
                                const ConnectOptions& options = {});

// The ranks of one engine, in their order.
std::vector<std::unique_ptr<Engine>> connect_ranks(const std::vector<std::string>& names, Deadline deadline,
                                                   const ConnectOptions& options = {});

}  // namespace tandem::engine
