#include "sync/cost/predict.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <vector>

namespace tandem::sync {
namespace {

constexpr double kTie = 1.05;

bool stays_in_cache(const Costs& costs, std::size_t bytes, std::size_t bucket_bytes, int depth) {
    return std::min(bytes, bucket_bytes) * static_cast<std::size_t>(depth) <= costs.cache_bytes / 2;
}

// One push by gather: how far filling and loading are.
class Pipeline {
  public:
    Pipeline(const Costs& costs, std::size_t bytes, std::size_t bucket_bytes, int depth, bool past_cache)
        : costs_(costs),
          bytes_(static_cast<double>(bytes)),
          bucket_(static_cast<double>(std::min(bytes, bucket_bytes))),
          buckets_(bytes == 0 ? 0 : (bytes + bucket_bytes - 1) / bucket_bytes),
          depth_(static_cast<std::size_t>(depth)),
          cached_(!past_cache && stays_in_cache(costs, bytes, bucket_bytes, depth)) {}

    Prediction play() {
        if (costs_.relays()) return take_turns(depth_, costs_.relay);
        if (depth_ == 1) return take_turns(1, costs_.turns);
        Prediction result;
        filled_ = std::min(depth_ - 1, buckets_);
        for (std::size_t b = 0; b < filled_; ++b) result.prepare_ms += fill_ms(b);
        posted_ = filled_;
        start_fill();
        load_left_ = posted_ > 0 ? load_ms(0) : 0;
        while (loaded_ < buckets_) result.total_ms += step();
        result.total_ms += costs_.fixed_ms;
        return result;
    }

  private:
    // A core fills or loads, one after the other, but for what is filled before the pause.
    Prediction take_turns(std::size_t ahead, const Stage& turn) const {
        Prediction result{0, costs_.fixed_ms};
        for (std::size_t b = 0; b < buckets_; ++b) {
            if (b < ahead) result.prepare_ms += fill_ms(b);
            result.total_ms += b < ahead ? load_ms(b) : turn.ms(bytes_of(b), cached_);
        }
        return result;
    }

    double bytes_of(std::size_t b) const {
        return b + 1 < buckets_ ? bucket_ : bytes_ - bucket_ * static_cast<double>(buckets_ - 1);
    }
    double fill_ms(std::size_t b) const { return costs_.fill.ms(bytes_of(b), cached_); }
    double load_ms(std::size_t b) const { return costs_.load.ms(bytes_of(b), cached_); }
    void start_fill() { fill_left_ = filled_ < buckets_ ? fill_ms(filled_) : 0; }

    double step_ms() const {
        const double step = costs_.both.ms(bucket_, cached_);
        return depth_ == 2 ? std::max(step, costs_.lockstep.ms(bucket_, cached_)) : step;
    }
    // The speed of each side while both work: fill and load of a full bucket, begun together, end after
    // both.ms. The longer goes on alone once the shorter is done.
    double speed_together() const {
        const double fill = costs_.fill.ms(bucket_, cached_);
        const double load = costs_.load.ms(bucket_, cached_);
        const double both = std::max({fill, load, step_ms()});
        const double shorter = std::min(fill, load);
        return shorter <= 0 ? 1 : shorter / (both - std::max(fill, load) + shorter);
    }

    // Until the next thing happens; returns the milliseconds until then.
    double step() {
        const bool filling = fill_left_ > 0;
        const bool loading = loaded_ < posted_;
        const double speed = filling && loading ? speed_together() : 1;
        double work = std::numeric_limits<double>::infinity();
        if (filling) work = std::min(work, fill_left_);
        if (loading) work = std::min(work, load_left_);
        if (filling) fill_left_ = advanced(fill_left_, work);
        if (loading) load_left_ = advanced(load_left_, work);
        if (loading && load_left_ <= 0) {
            ++loaded_;
            if (loaded_ < posted_) load_left_ = load_ms(loaded_);
        }
        // A full bucket is handed over once the slot of the next one is free.
        if (filled_ < buckets_ && fill_left_ <= 0 && loaded_ + depth_ >= filled_ + 2) {
            const bool idle = loaded_ == posted_;
            posted_ = ++filled_;
            if (idle) load_left_ = load_ms(loaded_);
            start_fill();
        }
        return work / speed;
    }
    static double advanced(double left, double work) { return left <= work ? 0 : left - work; }

    const Costs& costs_;
    double bytes_;
    double bucket_;
    std::size_t buckets_;
    std::size_t depth_;
    bool cached_;
    std::size_t filled_ = 0;  // buckets
    std::size_t posted_ = 0;
    std::size_t loaded_ = 0;
    double fill_left_ = 0;  // of bucket filled_; 0: full, or none left
    double load_left_ = 0;  // of bucket loaded_
};

}  // namespace

Prediction predict_gather(const Costs& costs, std::size_t bytes, std::size_t bucket_bytes, int depth,
                          bool past_cache) {
    return Pipeline(costs, bytes, bucket_bytes, depth, past_cache).play();
}

Prediction predict_direct(const Costs& costs, std::size_t bytes, std::size_t bucket_bytes) {
    const auto buckets = static_cast<double>((bytes + bucket_bytes - 1) / bucket_bytes);
    const auto total = static_cast<double>(bytes);
    return {total / costs.hash_gbps * 1e-6,
            costs.fixed_ms + buckets * costs.load.overhead_ms + total / costs.copy_gbps * 1e-6};
}

Buckets choose_buckets(const Costs& costs, std::size_t bytes, const Buckets& requested) {
    struct Candidate {
        Buckets buckets;
        double ms;
    };
    std::vector<Candidate> candidates;
    double best = std::numeric_limits<double>::infinity();
    for (int depth = 1; depth <= 4; ++depth) {
        for (std::size_t mib = 1; mib <= 128; mib *= 2) {
            for (const bool past_cache : {false, true}) {
                const Buckets one{requested.bytes > 0 ? requested.bytes : mib << 20,
                                  requested.depth > 0 ? requested.depth : depth, past_cache};
                // Ordinary stores to what no cache holds read it first.
                if (!past_cache && !stays_in_cache(costs, bytes, one.bytes, one.depth)) continue;
                const Prediction push = predict_gather(costs, bytes, one.bytes, one.depth, past_cache);
                candidates.push_back({one, push.prepare_ms + push.total_ms});
                best = std::min(best, candidates.back().ms);
            }
        }
    }
    const auto order = [](const Candidate& c) {
        const std::size_t staging = c.buckets.bytes * static_cast<std::size_t>(c.buckets.depth);
        return std::tuple(std::bit_ceil(staging), -static_cast<double>(c.buckets.bytes), staging, c.ms);
    };
    const Candidate* choice = nullptr;
    for (const Candidate& one : candidates) {
        if (one.ms > best * kTie) continue;
        if (choice == nullptr || order(one) < order(*choice)) choice = &one;
    }
    return choice->buckets;
}

}  // namespace tandem::sync
