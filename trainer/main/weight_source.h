// The policy's parameters as sync reads them.
#pragma once

#include <memory>
#include <vector>

#include "common/device/memory.h"
#include "common/device/stream.h"
#include "sync/weight_source.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {

// Of this rank's stage, where there are several: the policy's shards themselves, or, for an engine that cannot reach the GPU that they are on, copies of them
// in host memory: `mirrors`, null for the shards. The optimizer has finished whenever the loop publishes.
class PolicySource final : public sync::WeightSource {
  public:
    PolicySource(const Policy& policy, MemoryPool* mirrors);
    const std::vector<sync::NamedTensor>& tensors() const override { return tensors_; }
    const model::Architecture* architecture() const override { return &architecture_; }
    // Copies are brought up to date until then. Needs a Policy::OnloadScope.
    Event ready() const override;

  private:
    const Policy& policy_;
    const model::Architecture architecture_;
    std::unique_ptr<Stream> stream_;  // of the policy's GPU; null without mirrors
    std::vector<sync::NamedTensor> tensors_;
};

}  // namespace tandem::trainer
