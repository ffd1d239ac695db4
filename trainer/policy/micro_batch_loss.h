// A batch's loss, for the targets that this rank has of one micro-batch: tells the loss which token of which
// sample each target is. Where a loss needs sums over sequences, the ranks of the cp axis, which share every
// sequence of a pack, add theirs up.
#pragma once

#include "common/comm/communicator.h"
#include "trainer/data/micro_batch.h"
#include "trainer/loss/batch_loss.h"
#include "trainer/nn/target_loss.h"
#include "trainer/policy/token_buffer.h"

namespace tandem::trainer {

class MicroBatchLoss final : public TargetLoss {
  public:
    // All must outlive this. `context` is the cp axis; the loss's sums are added to `sums`, the targets' log-probs put
    // into `logprobs`, where that is not null.
    MicroBatchLoss(BatchLoss& loss, std::span<const Sample> samples, const Pack& pack,
                   const MicroBatch& batch, comm::Communicator& context, LossSums& sums,
                   TokenBuffer* logprobs)
        : loss_(loss),
          samples_(samples),
          pack_(pack),
          batch_(batch),
          context_(context),
          sums_(sums),
          logprobs_(logprobs) {}

    float temperature() const override { return loss_.options().temperature; }
    bool differentiates_entropy() const override { return loss_.options().entropy_coef != 0; }
    bool trains_values() const override { return loss_.options().value_coef != 0; }
    bool looks_ahead() const override { return loss_.needs_sequences(); }
    void look_ahead(std::span<const float> logprobs) override;  // collective over the cp axis
    void gradients(std::int64_t first, const TargetScores& scores, const TargetGradients& out) override;

  private:
    BatchLoss& loss_;
    std::span<const Sample> samples_;
    const Pack& pack_;
    const MicroBatch& batch_;
    comm::Communicator& context_;
    LossSums& sums_;
    TokenBuffer* logprobs_;
};

}  // namespace tandem::trainer
