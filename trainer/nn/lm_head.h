// Final norm and head, for the rows that have a target: log-probabilities, entropies and values, and in
// training the loss's gradient in the same pass. The logits exist for one chunk of rows at a time, and of this rank's part of
// the vocabulary alone; what comes back is this rank's term of dhidden.
#pragma once

#include "trainer/nn/linear.h"
#include "trainer/nn/rms_norm.h"
#include "trainer/nn/target_loss.h"
#include "trainer/tensor_parallel/cut_vocabulary.h"

namespace tandem::trainer {

class LmHead {
  public:
    // weight [this rank's part of the vocabulary, hidden]; value_weight [1, hidden], or null without a value head: a linear
    // function of the same normed hidden state.
    LmHead(RmsNorm norm, Parameter& weight, CutVocabulary vocabulary, Parameter* value_weight,
           std::int64_t chunk_rows);

    // Forward only. hidden: all rows.
    void score(const Compute& compute, const Tensor& hidden, const Targets& targets, float temperature,
               const TargetScores& scores) const;
    // Forward, loss and backward; returns dhidden.
    Tensor loss(const Compute& compute, const Tensor& hidden, const Targets& targets, TargetLoss& loss) const;

  private:
    // The rows of `hidden` that have a target, normed.
    Tensor select(const Compute& compute, const Tensor& hidden, const Targets& targets,
                  RmsNorm::Saved& saved) const;
    // Scores of `selected`, with its logits in `logits`.
    void score_chunk(const Compute& compute, const Tensor& selected, std::span<const std::int32_t> tokens,
                     float temperature, const Tensor& logits, std::span<float> lse,
                     const TargetScores& scores) const;
    void look_ahead(const Compute& compute, const Tensor& selected, const Targets& targets,
                    TargetLoss& loss) const;
    struct Chunk;
    static Chunk make_chunk(std::span<float> scratch, std::span<const std::int32_t> tokens,
                            const TargetLoss& loss);
    // dselected, and the weights' gradients. Destroys the logits.
    void backward_chunk(const Compute& compute, const Chunk& chunk, const TargetLoss& loss,
                        const Tensor& selected, const Tensor& logits, const Tensor& dselected) const;
    // Gradients of one linear output; accumulate: adds to dselected, which may be undefined: not wanted.
    void backward_linear(const Compute& compute, const Tensor& doutput, const Tensor& selected,
                         const Parameter& weight, Tensor dselected, bool accumulate) const;

    RmsNorm norm_;
    Parameter* weight_;
    CutVocabulary vocabulary_;
    Parameter* value_weight_;
    std::int64_t chunk_rows_;
};

}  // namespace tandem::trainer
