// Plans that this process has made, by the pair of layouts: an engine that comes back, or a second session
// between the same two, is not planned for again.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "common/ops/batched_copy.h"
#include "sync/plan/reshard.h"

namespace tandem::sync {

// Thread-safe. Keeps the plans used last.
class PlanCache {
  public:
    explicit PlanCache(std::size_t most = 8) : most_(most) {}
    // `layouts`: a text that says everything that the plan follows from. `make` is called where no plan is
    // kept; what it throws passes through.
    ReshardPlan get(const std::string& layouts, const std::function<ReshardPlan()>& make);
    std::size_t size() const;

  private:
    std::size_t most_;
    mutable std::mutex mutex_;
    std::list<std::pair<ops::Checksum, ReshardPlan>> plans_;  // the one used last in front
};

PlanCache& plan_cache();  // the process's

}  // namespace tandem::sync
