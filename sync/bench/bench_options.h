// Options of `tandem-sync bench`: flags and validation.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/device/device.h"
#include "engine_adapter/engine.h"
#include "sync/bench/trainer_mesh.h"

namespace CLI {
class App;
}

namespace tandem::sync {

struct BenchOptions {
    std::string shapes = "SmolLM2-135M";  // a name or a file (shapes.h)
    TrainerMesh mesh{2, 1};               // without names dp, cp
    bool shard_all = false;               // without names: shard over cp too, instead of replicating
    std::string mode = "gather";
    int engine_tp = 1;
    double changed = 1.0;   // the part of the elements that changes between syncs
    double bucket_mib = 0;  // 0: chosen
    int depth = 0;          // 0: chosen
    int iterations = 15;
    double link_gbps = 0;  // GB/s to each engine rank at most, over TCP; 0: as fast as it goes
    bool sweep = false;
    bool calibrate = false;  // measure the cost model's figures again
    std::string trace;       // a file
    std::string source_dtype = "bfloat16";
    std::string engine_dtype = "bfloat16";
    std::string device = "cpu";  // of trainer ranks and engine ranks alike: cpu, cuda, cuda:1
    std::string transport =
        "auto";  // shm, cuda_ipc, nccl, tcp; auto: what the device has, nccl aside, and tcp with link_gbps
    std::string data_listen = "127.0.0.1:0";  // of an engine rank, over tcp
    std::vector<std::string> engines;         // that run already, by address; none: they are started

    Device where() const;  // of the trainer ranks
    bool over_tcp() const { return transport == "tcp" || (transport == "auto" && link_gbps > 0); }
    Device engine_device(int rank) const;  // over nccl the GPUs after the trainer's, one each
    int world_size() const;
    std::size_t held_bytes() const;                  // by all trainer ranks
    Holdings holdings(const DeviceMesh& all) const;  // of the rank that sees mesh.over or mesh.abstract
    void validate() const;                           // throws ConfigError naming the option
    // The tensors of engine rank `rank`.
    std::vector<engine::TensorInfo> engine_tensors(int rank) const;
};

void add_options(CLI::App& app, BenchOptions& options);                    // a flag for each field
void add_mesh(CLI::App& app, TrainerMesh& mesh, const std::string& help);  // --mesh

}  // namespace tandem::sync
