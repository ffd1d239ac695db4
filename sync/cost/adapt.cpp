#include "sync/cost/adapt.h"

#include <algorithm>

#include "common/error.h"

namespace tandem::sync {

void Adapt::know(Cores cores, const Costs& costs, double spent_ms) {
    costs_[static_cast<std::size_t>(cores)] = costs;
    spent_ms_ += spent_ms;
    last_ms_ = std::max(last_ms_, costs.took_ms);
    forget_usual();
}

bool Adapt::look(Cores seen, double now_ms) {
    if (seen == Cores::unknown || seen == cores_) {
        seen_ = 0;
    } else {
        seen_ = seen == other_ ? seen_ + 1 : 1;
        other_ = seen;
        if (seen_ >= kSeen) {
            cores_ = seen;
            seen_ = 0;
            forget_usual();
        }
    }
    if (!known(cores_)) return true;
    if (strange_ < kStrange || spent_ms_ + last_ms_ > kShare * (now_ms - began_ms_)) return false;
    strange_ = 0;
    return true;
}

Buckets Adapt::choose() {
    const Buckets best = choose_buckets(costs(), bytes_, requested_);
    if (!active_ || push_ms(*active_) > kWorth * push_ms(best)) {
        if (active_ && (active_->bytes != best.bytes || active_->depth != best.depth)) forget_usual();
        active_ = best;
    }
    // Which way is faster with them may have changed all the same.
    active_->past_cache = choose_buckets(costs(), bytes_, {active_->bytes, active_->depth}).past_cache;
    return *active_;
}

Prediction Adapt::predicted() const {
    return predict(*active_);
}

void Adapt::pushed(double ms) {
    if (!active_) return;
    const double ratio = ms / std::max(1e-6, push_ms(*active_));
    if (usual_ == 0) {
        first_.push_back(ratio);
        if (first_.size() < kStrange) return;
        std::nth_element(first_.begin(), first_.begin() + kStrange / 2, first_.end());
        usual_ = first_[kStrange / 2];
        return;
    }
    const bool strange = ratio > kOff * usual_ || ratio * kOff < usual_;
    strange_ = strange ? strange_ + 1 : 0;
}

const Costs& Adapt::costs() const {
    require(known(cores_).has_value(), "buckets are chosen before costs are known");
    return *known(cores_);
}

Prediction Adapt::predict(const Buckets& buckets) const {
    return predict_gather(costs(), bytes_, buckets.bytes, buckets.depth, buckets.past_cache);
}

double Adapt::push_ms(const Buckets& buckets) const {
    const Buckets way = choose_buckets(costs(), bytes_, {buckets.bytes, buckets.depth});
    const Prediction push = predict(way);
    return push.prepare_ms + push.total_ms;
}

void Adapt::forget_usual() {
    first_.clear();
    usual_ = 0;
    strange_ = 0;
}

}  // namespace tandem::sync
