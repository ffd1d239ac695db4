// The update-latency benchmark: what one trainer rank does, and how the result is printed. Starting the
// processes is sync/main's part.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "common/comm/communicator.h"
#include "sync/bench/bench_options.h"
#include "sync/strategy/engines.h"

namespace tandem::sync {

// Collective. `connect` gives rank 0 fresh handles of the engine ranks. Returns the result on rank 0, null on
// the others. Fields: bytes, median_ms, p95_ms, totals_ms (pause to resume), phase_ms (medians; strategy/report.h), gbps,
// copy_gbps, speed_of_light_ms, lights_ms, speed_of_light_ratio (median of each sync's to the copy before it),
// prepared_ratio (prepare counted too), machine (sync/cost/tune.h), by_cores {share a cache | apart | unknown: …},
// staging_peak_bytes, staging_cap_bytes, steady_state_allocations, bytes_moved, verified, bucket_bytes,
// depth, relayed, device, transport, chosen_by, predicted_ms, predicted_prepare_ms, calibration (sync/cost), mesh,
// mode, hardware, …; with a sweep what SweepRounds::result() gives, a push being prepare and pause to resume.
nlohmann::json run_bench(const std::shared_ptr<comm::Communicator>& world,
                         const std::function<Engines()>& connect, const BenchOptions& options);

std::string bench_table(const nlohmann::json& result);  // for people, at most 100 columns

}  // namespace tandem::sync
