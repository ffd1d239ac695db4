// Chooses a session's buckets: the user's, else the cost model's, else the defaults; and predicts a push with
// them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "common/comm/communicator.h"
#include "sync/cost/predict.h"
#include "sync/plan/reshard.h"
#include "sync/strategy/engines.h"
#include "sync/strategy/options.h"

namespace tandem::sync {

// Below, a push takes milliseconds whatever its buckets are: nothing to measure for.
constexpr std::size_t kLeastTunedBytes = std::size_t{32} << 20;

struct Tuning {
    std::string chosen_by = "default";  // "user", "cost model", "network"
    std::size_t bucket_bytes = 0;       // as chosen; slots are no larger than what is used of them
    std::optional<Costs> costs;
    std::int64_t age_s = 0;  // of the costs; 0: measured for this session
    std::optional<Prediction> prediction;
};
nlohmann::json to_json(const Tuning& tuning);  // {chosen_by, predicted_ms, …, calibration {…}}

// Collective; the same on every rank. `options` have defaults where `requested` has zeros; what the cost
// model finds better replaces those, and over a network what suits that: there are no costs then. Costs come from costs_file() (store.h), else are measured and kept
// there. Only gather's model chooses buckets, gather's and direct's predict; for quantised weights there is
// none.
Tuning tune(comm::Communicator& world, const ReshardPlan& plan, const Engines& engines, CostModel model,
            const SessionOptions& requested, SessionOptions& options);

}  // namespace tandem::sync
