// Per-token numbers of a batch in one buffer, so that one reduction brings them to every rank. Each target
// belongs to one rank: the sum over ranks only adds zeros.
#pragma once

#include <vector>

#include "common/comm/communicator.h"
#include "common/tensor/tensor.h"
#include "trainer/data/micro_batch.h"
#include "trainer/policy/scores.h"

namespace tandem::trainer {

class TokenBuffer {
  public:
    static constexpr std::size_t kScores = 3;           // of a token: log-prob, entropy, value
    static constexpr std::size_t kFoundByAnUpdate = 1;  // the log-prob

    // `kinds` numbers a token, zero at first. The samples must outlive this.
    TokenBuffer(const std::vector<Sample>& samples, std::size_t kinds, MemoryPool& pool);

    void put(std::size_t kind, const MicroBatch::Owner& owner, float value);
    void reduce(comm::Communicator& world);  // collective
    Scores::PerToken get(std::size_t kind) const;

  private:
    std::int64_t total(std::size_t kinds);

    const std::vector<Sample>& samples_;
    std::vector<std::size_t> begins_;
    std::size_t tokens_ = 0;
    Tensor flat_;
};

}  // namespace tandem::trainer
