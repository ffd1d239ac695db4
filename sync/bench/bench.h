// The update-latency benchmark: what one trainer rank does, and how the result is printed. Starting the
// processes is main.cpp's part.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "engine_adapter/engine.h"

namespace tandem::sync {

struct BenchOptions {
    std::string shapes = "SmolLM2-135M";
    std::vector<int> mesh{2, 1};  // dp, cp
    bool shard_all = false;       // shard over cp too, instead of replicating
    double bucket_mib = 64;       // 0: chosen
    int depth = 2;                // 0: chosen
    int iterations = 15;
    DType source_dtype = DType::bfloat16;
    DType engine_dtype = DType::bfloat16;

    int world_size() const;
    void validate() const;  // throws ConfigError naming the option
};

// Collective. rank 0 passes the engine. Returns the result on rank 0, null on the others. Fields: bytes,
// median_ms, p95_ms (pause to resume), phase_ms (medians), gbps, copy_gbps, speed_of_light_ms,
// speed_of_light_ratio, staging_peak_bytes, staging_cap_bytes, steady_state_allocations, bytes_moved,
// verified, bucket_bytes, depth, mesh, …
nlohmann::json run_bench(std::shared_ptr<comm::Communicator> world, std::unique_ptr<engine::Engine> engine,
                         const BenchOptions& options);

std::string bench_table(const nlohmann::json& result);  // for people, at most 100 columns

}  // namespace tandem::sync
