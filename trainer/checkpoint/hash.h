// XXH3-128 of bytes that come in pieces; equals ops::checksum of all of them together.
#pragma once

#include <memory>

#include "common/device/device.h"
#include "common/ops/batched_copy.h"

namespace tandem::trainer {

class Hash {
  public:
    Hash();
    ~Hash();
    void add(ConstSpan bytes);
    ops::Checksum value() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace tandem::trainer
