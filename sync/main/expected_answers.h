// What the weights of a directory say after a probe's prompts, by the engine that ships, in this process: what servers of
// every kind should say that were given those weights.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/model/model_config.h"
#include "sync/push/probe.h"

namespace tandem::sync {

class ExpectedAnswers {
  public:
    // Throws ConfigError: an architecture that the engine which ships does not know.
    explicit ExpectedAnswers(const std::string& directory);

    const Prompts& prompts() const { return prompts_; }
    // Computed once for each dtype. Blocks; from any thread. Throws ConfigError naming file and tensor.
    const std::vector<Said>& in(DType dtype);

  private:
    std::vector<Said> computed(DType dtype) const;

    std::string directory_;
    model::ModelConfig config_;
    Prompts prompts_;
    std::mutex mutex_;
    std::map<DType, std::vector<Said>> answers_;
};

}  // namespace tandem::sync
