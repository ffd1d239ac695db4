// The update-latency benchmark: what one trainer rank does, and how the result is printed. Starting the
// processes is main.cpp's part.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "sync/push/engines.h"
#include "sync/push/options.h"

namespace tandem::sync {

struct BenchOptions {
    std::string shapes = "SmolLM2-135M";  // a name or a file (shapes.h)
    std::vector<int> mesh{2, 1};          // dp, cp
    bool shard_all = false;               // shard over cp too, instead of replicating
    std::string mode = "gather";
    int engine_tp = 1;
    double changed = 1.0;   // the part of the elements that changes between syncs
    double bucket_mib = 0;  // 0: chosen
    int depth = 0;          // 0: chosen
    int iterations = 15;
    double link_gbps = 0;  // GB/s between trainer and engine; 0: as fast as memory
    bool sweep = false;
    bool calibrate = false;  // measure the cost model's figures anew
    std::string trace;       // a file
    std::string source_dtype = "bfloat16";
    std::string engine_dtype = "bfloat16";
    std::string device = "cpu";      // of trainer ranks and engine ranks alike: cpu, cuda, cuda:1
    std::string transport = "auto";  // shm, cuda_ipc, nccl; auto: what the device has, nccl aside

    Device where() const;                  // of the trainer ranks
    Device engine_device(int rank) const;  // over nccl the GPUs after the trainer's, one each
    int world_size() const;
    std::size_t held_bytes() const;  // by all trainer ranks
    void validate() const;           // throws ConfigError naming the option
    // What engine rank `rank` holds.
    std::vector<engine::TensorInfo> engine_tensors(int rank) const;
};

// Collective. `connect` gives rank 0 fresh handles of the engine ranks. Returns the result on rank 0, null on
// the others. Fields: bytes, median_ms, p95_ms, totals_ms (pause to resume), phase_ms (medians), gbps,
// copy_gbps, speed_of_light_ms, speed_of_light_ratio, prepared_ratio (prepare counted too),
// staging_peak_bytes, staging_cap_bytes, steady_state_allocations, bytes_moved, verified, bucket_bytes,
// depth, device, transport, chosen_by, predicted_ms, predicted_prepare_ms, calibration (sync/cost), mesh,
// mode, hardware, …; with a sweep: sweep [{bucket_bytes, depth, median_ms, speed_of_light_ratio, push_ms,
// push_ratio, …}], a push being prepare and pause to resume.
nlohmann::json run_bench(const std::shared_ptr<comm::Communicator>& world,
                         const std::function<Engines()>& connect, const BenchOptions& options);

std::string bench_table(const nlohmann::json& result);  // for people, at most 100 columns

}  // namespace tandem::sync
