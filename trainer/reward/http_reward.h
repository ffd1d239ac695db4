// Scores from a reward server over HTTP. The contract is in ../data/README.md.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "trainer/reward/reward.h"

namespace tandem::trainer {

// The samples go out in requests of `batch`, `connections` at once. A request that fails for want of a
// connection, for time, or with status 408, 429 or 5xx is sent again after a growing pause, until the
// deadline of the call; any other status, and an answer that breaks the contract, ends the call at once.
class HttpReward final : public Reward {
  public:
    explicit HttpReward(RewardOptions options);  // throws InvalidArgument for a malformed URL
    std::string complaint(const std::string& answer) const override;
    // Throws TransportError or DeadlineExceeded naming the URL and the last failure, ProtocolError naming
    // the URL and the field.
    std::vector<double> scores(std::span<const AnsweredPrompt> answered) const override;

  private:
    RewardOptions options_;
};

}  // namespace tandem::trainer
