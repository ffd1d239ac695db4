// The policy's parameters as sync reads them.
#pragma once

#include <memory>
#include <vector>

#include "common/device/memory.h"
#include "common/device/stream.h"
#include "sync/weight_source.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {

// The policy's shards themselves, or, for an engine that cannot reach the GPU that they are on, copies of them
// in host memory: `mirrors`, null for the shards. The optimizer has finished whenever the loop publishes.
class PolicySource final : public sync::WeightSource {
  public:
    PolicySource(const Policy& policy, MemoryPool* mirrors);
    // Brings the copies up to date. Needs a Policy::OnloadScope.
    void refresh();
    const std::vector<sync::NamedTensor>& tensors() const override { return tensors_; }
    Event ready() const override { return {}; }

  private:
    const Policy& policy_;
    std::unique_ptr<Stream> stream_;  // of the policy's GPU; null without mirrors
    std::vector<sync::NamedTensor> tensors_;
};

}  // namespace tandem::trainer
