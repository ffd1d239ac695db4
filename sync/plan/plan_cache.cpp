#include "sync/plan/plan_cache.h"

#include <algorithm>

namespace tandem::sync {

ReshardPlan PlanCache::get(const std::string& layouts, const std::function<ReshardPlan()>& make) {
    const ops::Checksum key =
        ops::checksum({reinterpret_cast<const std::byte*>(layouts.data()), layouts.size()});
    {
        const std::lock_guard lock(mutex_);
        const auto found =
            std::find_if(plans_.begin(), plans_.end(), [&](const auto& kept) { return kept.first == key; });
        if (found != plans_.end()) {
            plans_.splice(plans_.begin(), plans_, found);
            return plans_.front().second;
        }
    }
    ReshardPlan plan = make();
    const std::lock_guard lock(mutex_);
    plans_.emplace_front(key, plan);
    if (plans_.size() > most_) plans_.pop_back();
    return plan;
}

std::size_t PlanCache::size() const {
    const std::lock_guard lock(mutex_);
    return plans_.size();
}

PlanCache& plan_cache() {
    static PlanCache cache;
    return cache;
}

}  // namespace tandem::sync
