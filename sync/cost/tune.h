// Chooses a session's buckets: the user's, else the cost model's, else the defaults; predicts a push with them, and
// chooses again when the machine has changed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "common/comm/communicator.h"
#include "common/stopwatch.h"
#include "sync/cost/adapt.h"
#include "sync/cost/cache_path.h"
#include "sync/cost/cores.h"
#include "sync/cost/predict.h"
#include "sync/plan/reshard.h"
#include "sync/strategy/engines.h"
#include "sync/strategy/options.h"
#include "sync/weight_source.h"

namespace tandem::sync {

// Below, a push takes milliseconds whatever its buckets are: nothing to measure for.
constexpr std::size_t kLeastTunedBytes = std::size_t{32} << 20;

struct Tuning {
    std::string chosen_by = "default";  // "user", "cost model", "network"
    std::size_t bucket_bytes = 0;       // as chosen; slots are no larger than what is used of them
    std::optional<Costs> costs;
    std::int64_t age_s = 0;  // of the costs; 0: measured for this session
    std::optional<Prediction> prediction;
    Cores cores = Cores::unknown;  // at the last push
    double core_ns = 0;            // 0: unknown
    bool past_cache = false;       // how its staging was written
    bool settled = true;           // … and not to see what that way takes (cache_path.h)
    int measured_again = 0;        // since the session began
    int changed = 0;               // other buckets, since then
};
nlohmann::json to_json(const Tuning& tuning);  // {chosen_by, predicted_ms, …, machine {…}, calibration {…}}

// A session's buckets, followed as the machine changes. Collective calls, of all ranks alike.
class Tuner {
  public:
    // `options` have defaults where `requested` has zeros; what the cost model finds better replaces those, and over a
    // network what suits that: there are no costs then. Costs come from costs_file() (store.h), else are measured and
    // kept there. Only gather's model chooses buckets, gather's and direct's predict; for quantised weights there is none.
    // Borrows all of it.
    Tuner(comm::Communicator& world, const WeightSource& source, const ReshardPlan& plan,
          const Engines& engines, CostModel model, bool quantised, const SessionOptions& requested,
          SessionOptions& options);

    // Before a push is prepared: sees whether cores share a cache now, writes options' past_cache, and other buckets where
    // they are worth the change (adapt.h). True: the engines are to be attached anew, with options as they are now, and
    // again until attached() is called. Throws SyncError on all ranks alike.
    bool look();
    void attached() { attached_ = true; }
    // That push has succeeded.
    void pushed(double prepare_ms, double total_ms);

    const Tuning& tuning() const { return tuning_; }

  private:
    struct Decision;
    Cores see();
    std::string key(Cores cores) const;
    void find_costs(Cores cores);
    void measure(Cores cores, std::chrono::milliseconds budget);
    void decide(Decision& decision);
    void carry_out(const Decision& decision);
    void say(const char* what) const;
    bool leads() const { return world_.rank() == 0; }
    double now_ms() const { return clock_.ms(); }

    comm::Communicator& world_;
    const WeightSource& source_;
    const ReshardPlan& plan_;
    const Engines& engines_;
    const CostModel model_;
    const SessionOptions requested_;
    SessionOptions& options_;
    Tuning tuning_;
    const Stopwatch clock_;
    bool staged_ = false;
    bool attached_ = true;
    std::optional<CoreDistance> distance_;  // none: nothing is followed
    // Rank 0's:
    double core_ns_ = 0;  // as last seen
    int unseen_ = 0;      // looks in a row that saw nothing
    std::optional<Adapt> adapt_;
    std::optional<CachePath> path_;
    bool touched_ = false;  // by a push, all that pushes write
};

}  // namespace tandem::sync
