// An engine rank of the contract in this process, its weights on the CPU or on a GPU (emulated where there is none).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine_adapter/receiver/receiver.h"
#include "tests/contract/transport/contract.h"
#include "tests/support/device_bytes.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"

namespace tandem::engine {

// Holds a whole version of zeros.
class EngineHere {
  public:
    explicit EngineHere(Device device, const ReceiverOptions& options = {})
        : device_(device), target_(TransportRig::tensors(), true, device) {
        for (const WeightSlot& weight : target_.weights()) {
            const std::vector<std::byte> zeros(weight.memory.bytes);
            test::upload(device_, {zeros.data(), zeros.size()}, weight.memory);
        }
        target_.begin_update(1);
        target_.commit_update(1);
        receiver_ = std::make_unique<Receiver>(target_, options);
    }
    const std::string& address() const { return receiver_->address(); }
    int data_port() const { return receiver_->data_port(); }
    const TestTarget& target() const { return target_; }
    std::vector<std::byte> weights(int tensor) const {
        return test::download(device_, target_.weights()[static_cast<std::size_t>(tensor)].memory);
    }
    void stop() { receiver_.reset(); }

  private:
    const Device device_;
    TestTarget target_;
    std::unique_ptr<Receiver> receiver_;
};

}  // namespace tandem::engine
