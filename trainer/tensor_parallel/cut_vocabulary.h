// A vocabulary whose rows, of the embedding and of the head, are cut over the ranks of the tp axis: each looks up its own ids,
// and makes the logits of its own columns. Log-probabilities and entropies of the whole vocabulary come from three numbers a
// row and rank, in one gather: no rank sees a whole row of logits (loss parallelism).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/communicator.h"
#include "common/device/stream.h"
#include "common/tensor/tensor.h"

namespace tandem::trainer {

class CutVocabulary {
  public:
    // rows of the whole table; `group` is the tp axis and must outlive this. loss_parallel false: the logits of all ranks are
    // gathered for the scores, whose bits are then those of one rank.
    CutVocabulary(comm::Communicator& group, std::int64_t rows, bool loss_parallel);

    // The ids as rows of this rank's part; `elsewhere` stands for those of other parts.
    std::vector<std::int32_t> here(std::span<const std::int32_t> ids, std::int32_t elsewhere) const;

    // As ops::token_logprobs with logits [rows, this rank's part] and targets of the whole vocabulary; lse too is the whole
    // one's. The same bits on every rank. Collective where the vocabulary is cut, and then blocking.
    void logprobs(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                  float temperature, std::span<float> logprobs, std::span<float> lse,
                  std::span<float> entropies) const;
    // As ops::token_logprobs_backward, of what logprobs() found. No communication.
    void logprobs_backward(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                           float temperature, std::span<const float> lse, std::span<const float> dlogprobs,
                           std::span<const float> entropies, std::span<const float> dentropies) const;

  private:
    void combine(std::span<const std::int32_t> targets, std::span<float> logprobs, std::span<float> lse,
                 std::span<float> entropies) const;
    Tensor gather_columns(Stream& stream, const Tensor& logits) const;

    comm::Communicator& group_;
    std::int64_t rows_;
    std::int64_t part_rows_;  // of the first ranks' parts; the last ones may be shorter or empty
    bool loss_parallel_;
};

}  // namespace tandem::trainer
