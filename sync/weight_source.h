// The trainer's port to a sync: named DTensors, and an event after which they may be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/device/stream.h"
#include "common/dtensor/dtensor.h"
#include "common/model/architecture.h"

namespace tandem::sync {

struct NamedTensor {
    std::string name;  // Hugging Face name
    DTensor tensor;
};

class WeightSource {
  public:
    virtual ~WeightSource() = default;
    // What this rank has a part of, and the same for the source's whole life; the values change. A tensor has one shape and dtype
    // on all ranks that have it.
    virtual const std::vector<NamedTensor>& tensors() const = 0;
    // Asked once before each reading: what made the current values is done, and tensors() may be read.
    virtual Event ready() const = 0;
    // What rank 0 compares with that of engines that say theirs, before anything is sent; null: it is not known. Asked only
    // where an engine does. Throws ConfigError: one that no engine of ours can have.
    virtual const model::Architecture* architecture() const { return nullptr; }
    // Called on rank 0 before engines are told to commit what was read. Throws where it may hold parts of two versions.
    virtual void require_unchanged() const {}
};

}  // namespace tandem::sync
