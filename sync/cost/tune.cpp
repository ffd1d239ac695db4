#include "sync/cost/tune.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "common/error.h"
#include "common/json_text.h"
#include "common/log.h"
#include "sync/cost/calibrate.h"
#include "sync/cost/host.h"
#include "sync/cost/store.h"
#include "sync/strategy/bucket_sizes.h"
#include "sync/strategy/collectives.h"

namespace tandem::sync {
namespace {

// The dtypes that most of a model has: those of the largest tensor.
template <typename Tensors>
DType main_dtype(const Tensors& tensors) {
    const auto largest = std::max_element(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
        return numel(a.shape) < numel(b.shape);
    });
    return largest->dtype;
}

std::string age_text(std::int64_t seconds) {
    if (seconds < 120) return fmt::format("{} s", seconds);
    if (seconds < 2 * 3600) return fmt::format("{} min", seconds / 60);
    if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
    return fmt::format("{} days", seconds / 86400);
}

std::string size_text(std::size_t bytes) {
    return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / 1048576.0);
}

// Collective.
bool any_remote(comm::Communicator& world, const Engines& engines) {
    const bool mine = std::any_of(engines.begin(), engines.end(),
                                  [](const auto& engine) { return engine->capabilities().remote; });
    return !broadcast_text(world, mine ? "remote" : "").empty();
}

// Over a network a bucket must be large beside a round trip, and what is in flight beside the bytes that are on the way:
// 96 MiB behind the one that is being filled are 20 ms at 5 GB/s. Caches do not matter.
void choose_for_network(const SessionOptions& requested, SessionOptions& options, Tuning& tuning) {
    constexpr std::size_t kBucketBytes = std::size_t{32} << 20;
    constexpr int kDepth = 4;
    if (requested.bucket_bytes == 0) tuning.bucket_bytes = options.bucket_bytes = kBucketBytes;
    if (requested.depth == 0) options.depth = kDepth;
    if (tuning.chosen_by != "user") tuning.chosen_by = "network";
}

}  // namespace

nlohmann::json to_json(const Tuning& tuning) {
    nlohmann::json json{{"chosen_by", tuning.chosen_by}, {"chosen_bucket_bytes", tuning.bucket_bytes}};
    if (tuning.prediction) {
        json["predicted_ms"] = tuning.prediction->total_ms;
        json["predicted_prepare_ms"] = tuning.prediction->prepare_ms;
    }
    json["machine"] = {{"cores", cores_name(tuning.cores)},
                       {"core_ns", tuning.core_ns},
                       {"past_cache", tuning.past_cache},
                       {"measured_again", tuning.measured_again},
                       {"buckets_changed", tuning.changed}};
    if (tuning.costs) {
        json["calibration"] = to_json(*tuning.costs);
        json["calibration"]["age_s"] = tuning.age_s;
    }
    return json;
}

// --- a session's beginning

// What rank 0 tells the others.
struct Tuner::Decision {
    Cores cores = Cores::unknown;
    bool measures = false;
    bool past_cache = false;
    bool settled = true;
    bool predicts = false;
    int depth = 0;
    std::size_t bucket_bytes = 0;
    double core_ns = 0;
    Prediction prediction;
    Span bytes() { return {reinterpret_cast<std::byte*>(this), sizeof(*this)}; }
};

Tuner::Tuner(comm::Communicator& world, const WeightSource& source, const ReshardPlan& plan,
             const Engines& engines, CostModel model, bool quantised, const SessionOptions& requested,
             SessionOptions& options)
    : world_(world),
      source_(source),
      plan_(plan),
      engines_(engines),
      model_(model),
      requested_(requested),
      options_(options),
      staged_(model == CostModel::gather) {
    if (requested.bucket_bytes > 0 && (requested.depth > 0 || !staged_)) tuning_.chosen_by = "user";
    tuning_.bucket_bytes = options.bucket_bytes;
    if (plan.bytes() < kLeastTunedBytes || model == CostModel::none) return;
    if (any_remote(world, engines)) {
        if (!quantised) choose_for_network(requested, options, tuning_);
        return;
    }
    distance_.emplace(world);
    const Cores cores = see();
    if (leads()) tuning_.cores = cores;
    Decision decision;
    if (!quantised) {
        find_costs(cores);
        if (tuning_.chosen_by != "user" && staged_) tuning_.chosen_by = "cost model";
    }
    if (leads()) decide(decision);
    world.broadcast(decision.bytes(), 0);
    carry_out(decision);
    attached_ = true;  // nothing was, yet
    tuning_.changed = 0;
    if (tuning_.prediction) say("begins with");
}

// Rank 0's answer. Every rank calls it, and those that a line passes between are then behind a rendezvous.
Cores Tuner::see() {
    constexpr int kTries = 3, kTryAgain = 16;  // where ranks never run at once, a try costs what it waits
    std::int64_t tries = unseen_ < kTries || unseen_ % kTryAgain == 0 ? 1 : 0;
    world_.broadcast({reinterpret_cast<std::byte*>(&tries), sizeof(tries)}, 0);
    auto nanoseconds = tries != 0 ? distance_->measure() : std::nullopt;
    if (requested_.core_ns && leads()) nanoseconds = requested_.core_ns();
    unseen_ = nanoseconds ? 0 : unseen_ + 1;
    if (nanoseconds) core_ns_ = *nanoseconds;
    return cores_at(nanoseconds);
}

// Names all that the costs depend on besides the bytes. Engines are on the trainer's host: they map its memory.
std::string Tuner::key(Cores cores) const {
    return fmt::format(
        "{}, {}, {} cores: {}; {} ranks at their cores; {} x engine {} on the same host; {} to {}",
        host_name(), processor_name(), std::thread::hardware_concurrency(), cores_name(cores), world_.size(),
        plan_.engine().size(), engines_.front()->capabilities().engine,
        dtype_name(main_dtype(plan_.source().tensors)), dtype_name(main_dtype(plan_.engine().front())));
}

// From the file of rank 0, or measured by all.
void Tuner::find_costs(Cores cores) {
    const std::filesystem::path file = costs_file();
    const std::int64_t now = seconds_since_1970();
    std::string known;
    if (leads()) {
        adapt_.emplace(plan_.bytes(), Buckets{requested_.bucket_bytes, requested_.depth}, now_ms());
        for (const Cores one : {cores, Cores::share_cache, Cores::apart}) {
            if (requested_.calibrate || adapt_->known(one)) continue;
            if (const auto stored = stored_costs(file, key(one), now)) adapt_->know(one, *stored);
        }
        adapt_->begin(cores);
        if (adapt_->known(cores)) known = to_json(*adapt_->known(cores)).dump();
    }
    known = broadcast_text(world_, known);
    if (known.empty()) return measure(cores, CalibrationOptions().budget);
    tuning_.costs = costs_from_json(parse_json_text(known));
    tuning_.age_s = std::max<std::int64_t>(1, now - tuning_.costs->measured_at);
}

void Tuner::measure(Cores cores, std::chrono::milliseconds budget) {
    CalibrationOptions options;
    options.from = main_dtype(plan_.source().tensors);
    options.to = main_dtype(plan_.engine().front());
    options.deadline = requested_.deadlines.load;
    options.budget = budget;
    for (const NamedTensor& tensor : source_.tensors()) {
        const Tensor& local = tensor.tensor.local();
        if (local.dtype() == options.from) options.shards.push_back(local.span());
    }
    attached_ = false;
    // A machine that moved meanwhile is measured as what it is now; at last its costs are for want of better ones.
    constexpr int kAttempts = 3;
    for (int attempt = 1;; ++attempt) {
        tuning_.costs = calibrate(world_, engines_, options);
        tuning_.costs->core_ns = core_ns_;
        tuning_.age_s = 0;
        const Cores after = see();
        const bool both_seen = cores != Cores::unknown && after != Cores::unknown;
        std::int64_t moved = leads() && both_seen && after != cores ? 1 : 0;
        world_.broadcast({reinterpret_cast<std::byte*>(&moved), sizeof(moved)}, 0);
        if (moved != 0 && attempt < kAttempts) {
            if (leads()) adapt_->begin(cores = after);
            continue;
        }
        if (!leads()) return;
        adapt_->know(cores, *tuning_.costs, adapt_->known(cores) ? tuning_.costs->took_ms : 0);
        if (moved == 0) store_costs(costs_file(), key(cores), *adapt_->known(cores));
        return;
    }
}

// --- push by push

bool Tuner::look() {
    if (!distance_) return false;
    const Cores seen = see();
    Decision decision;
    if (leads()) {
        if (seen != Cores::unknown) tuning_.cores = seen;
        decision.measures = staged_ && adapt_ && adapt_->look(seen, now_ms());
        if (!decision.measures) decide(decision);
    }
    world_.broadcast(decision.bytes(), 0);
    if (decision.measures) {
        constexpr std::chrono::milliseconds kAgain{200};
        measure(leads() ? adapt_->cores() : Cores::unknown, kAgain);
        ++tuning_.measured_again;
        if (leads()) decide(decision);
        world_.broadcast(decision.bytes(), 0);
    }
    const int changed = tuning_.changed;
    carry_out(decision);
    if (tuning_.changed > changed) say("goes on with");
    touched_ = touched_ && attached_;
    return !attached_;
}

void Tuner::pushed(double prepare_ms, double total_ms) {
    if (!leads() || !staged_ || !distance_) return;
    if (adapt_) adapt_->pushed(prepare_ms + total_ms);
    // The first push after an attach touches what it writes for the first time.
    if (std::exchange(touched_, true)) path_->took(tuning_.cores, total_ms);
}

// On rank 0.
void Tuner::decide(Decision& decision) {
    decision.cores = tuning_.cores;
    decision.core_ns = core_ns_;
    decision.bucket_bytes = options_.bucket_bytes;
    decision.depth = options_.depth;
    if (!staged_) {
        if (!tuning_.costs) return;
        decision.predicts = true;
        decision.prediction = predict_direct(*tuning_.costs, plan_.bytes(), options_.bucket_bytes);
        return;
    }
    const auto fits = [&] {
        return std::min(plan_.bytes(), decision.bucket_bytes) * static_cast<std::size_t>(decision.depth) <=
               last_level_cache_bytes() / 2;
    };
    bool past = requested_.past_cache.value_or(!fits());
    if (adapt_) {
        const Buckets buckets = adapt_->choose();
        if (!path_ || buckets.bytes != options_.bucket_bytes || buckets.depth != options_.depth)
            path_.reset();
        decision.bucket_bytes = buckets.bytes;
        decision.depth = buckets.depth;
        past = requested_.past_cache.value_or(buckets.past_cache);
        tuning_.costs = adapt_->known(adapt_->cores());
    }
    if (!path_) path_.emplace(past, !requested_.past_cache && fits());
    path_->begin(tuning_.cores, past);
    decision.past_cache = path_->past(tuning_.cores);
    decision.settled = path_->settled(tuning_.cores);
    if (!adapt_) return;
    decision.predicts = true;
    decision.prediction = predict_gather(*tuning_.costs, plan_.bytes(), decision.bucket_bytes, decision.depth,
                                         decision.past_cache);
}

void Tuner::carry_out(const Decision& decision) {
    const bool others = decision.bucket_bytes != options_.bucket_bytes || decision.depth != options_.depth;
    options_.bucket_bytes = tuning_.bucket_bytes = decision.bucket_bytes;
    options_.depth = decision.depth;
    if (staged_) options_.past_cache = tuning_.past_cache = decision.past_cache;
    tuning_.settled = decision.settled;
    tuning_.cores = decision.cores;
    tuning_.core_ns = decision.core_ns;
    if (decision.predicts) tuning_.prediction = decision.prediction;
    if (!others) return;
    attached_ = false;
    ++tuning_.changed;
}

void Tuner::say(const char* what) const {
    if (!leads()) return;
    const std::string origin = tuning_.age_s == 0
                                   ? fmt::format("calibrated in {:.1f} s", tuning_.costs->took_ms * 1e-3)
                                   : fmt::format("calibrated {} ago", age_text(tuning_.age_s));
    const std::string depth =
        staged_ ? fmt::format(", depth {}{}", options_.depth, tuning_.past_cache ? ", past the cache" : "")
                : "";
    const std::string cores =
        tuning_.cores == Cores::unknown ? "" : fmt::format("; cores {}", cores_name(tuning_.cores));
    const std::string chosen_by = tuning_.chosen_by == "user" ? "as given" : "by the " + tuning_.chosen_by;
    log_info("sync {} buckets of {}{}, {}: predicted {:.1f} ms ({}{})", what,
             size_text(options_.bucket_bytes), depth, chosen_by, tuning_.prediction->total_ms, origin, cores);
}

}  // namespace tandem::sync
