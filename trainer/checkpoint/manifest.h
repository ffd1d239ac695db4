// manifest.json of a training checkpoint, written last. A folder without one, or whose files differ from what
// it says, is not a checkpoint.
//
//   RUN/checkpoints/step-N/
//     rank-00000.safetensors …         each rank's block of every tensor: weights/NAME, exp_avg/NAME,
//                                      exp_avg_sq/NAME, and reference/NAME if there is a reference model
//     metrics.jsonl, samples.jsonl     the run's lines up to this step
//     manifest.json                    configuration, model, loop, mesh, digests of the data; dtype, shape and
//                                      each rank's block of every tensor; size and XXH3-128 of every other file
//
// "tensors": {NAME: {"dtype", "shape", "rows": [[first, count] of each rank],
//                    "columns": the same, where a rank has less than whole rows: tensor parallelism}}
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/dtensor/block.h"
#include "common/model/safetensors.h"
#include "common/ops/batched_copy.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"

namespace tandem::trainer {

struct Manifest {
    struct File {
        std::size_t bytes = 0;
        ops::Checksum checksum;
    };
    struct TensorEntry {
        DType dtype = DType::float32;
        Shape shape;
        std::vector<TensorBlock> blocks;  // of each rank's file
    };

    std::int64_t step = 0;  // of the whole run: warm start and reinforcement together
    std::int64_t optimizer_steps = 0;
    nlohmann::ordered_json config;  // dotted key -> value
    nlohmann::ordered_json model;   // config.json
    nlohmann::ordered_json loop;    // where the loop stands: trainer/loop_state.h
    nlohmann::ordered_json mesh;    // that wrote it: axis -> ranks; for people
    nlohmann::ordered_json data;    // what the run's files hold: trainer/run/data_files.h; null in older ones
    std::map<std::string, TensorEntry> tensors;
    std::map<std::string, File> files;
};

std::string rank_file(std::size_t rank);  // "rank-00003.safetensors"
// The other files of a checkpoint: what a run had logged.
std::vector<std::string> log_files(const Manifest& manifest);

std::string to_json(const Manifest& manifest);
// Reads DIR/manifest.json. Every element of every tensor is then in one rank's block, and in one alone. Throws ConfigError
// naming the file, and key or tensor.
Manifest read_manifest(const std::string& directory);

// Whether a rank's file holds its block of a tensor as the manifest says. Throws ConfigError naming file and tensor.
void require_block(const model::Safetensors& file, const std::string& name,
                   const Manifest::TensorEntry& entry, std::size_t rank);

// Every file there, with its size and its checksum; reads all of it, on as many threads as help. Throws
// ConfigError naming the file, what it should be and what it is.
void verify(const Manifest& manifest, const std::string& directory);

}  // namespace tandem::trainer
