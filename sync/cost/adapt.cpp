#include "sync/cost/adapt.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/error.h"

namespace tandem::sync {
namespace {

std::size_t index(Cores cores) {
    return static_cast<std::size_t>(cores);
}

}  // namespace

void Adapt::know(Cores cores, const Costs& costs, double spent_ms) {
    spent_ms_ += spent_ms;
    last_ms_ = std::max(last_ms_, costs.took_ms);
    if (std::exchange(again_, false) && predicts_worse(costs)) return;
    costs_[index(cores)] = costs;
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
    int& pushes = pushes_[index(cores_)];
    int& wait = wait_[index(cores_)];
    const bool strange = strange_ >= kStrange;
    if (!strange && pushes < wait) return false;
    if (spent_ms_ + last_ms_ > kShare * (now_ms - began_ms_)) return false;
    again_ = !strange;
    if (again_) wait = std::min(2 * wait, kAgain << 10);
    pushes = 0;
    strange_ = 0;
    return true;
}

Buckets Adapt::choose() {
    const Buckets best = choose_buckets(costs(), bytes_, requested_);
    if (!active_ || push_ms(costs(), *active_) > kWorth * push_ms(costs(), best)) {
        if (active_ && (active_->bytes != best.bytes || active_->depth != best.depth)) forget_usual();
        active_ = best;
    }
    // Which way is faster with them may have changed all the same.
    active_->past_cache = choose_buckets(costs(), bytes_, {active_->bytes, active_->depth}).past_cache;
    return *active_;
}

Prediction Adapt::predicted() const {
    return predict_gather(costs(), bytes_, active_->bytes, active_->depth, active_->past_cache);
}

void Adapt::pushed(double ms) {
    if (!active_) return;
    ++pushes_[index(cores_)];
    const double ratio = ms / std::max(1e-6, push_ms(costs(), *active_));
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

double Adapt::push_ms(const Costs& costs, const Buckets& buckets) const {
    const Buckets way = choose_buckets(costs, bytes_, {buckets.bytes, buckets.depth});
    const Prediction push = predict_gather(costs, bytes_, way.bytes, way.depth, way.past_cache);
    return push.prepare_ms + push.total_ms;
}

bool Adapt::predicts_worse(const Costs& costs) const {
    if (usual_ == 0 || !known(cores_) || !active_) return false;
    const double before = push_ms(*known(cores_), *active_), now = push_ms(costs, *active_);
    const double out_now = std::abs(std::log(usual_ * before / now));
    return out_now > std::abs(std::log(usual_)) + std::log(kWorth);
}

void Adapt::forget_usual() {
    first_.clear();
    usual_ = 0;
    strange_ = 0;
}

}  // namespace tandem::sync
