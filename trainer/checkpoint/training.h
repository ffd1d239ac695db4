// A training run on disk, so that it can go on after a crash: written by all ranks at once, each its own block of every
// tensor in a file of its own; read back by any mesh, each rank only the elements that it needs. A folder
// with a checkpoint's name is whole and on the disk; the one before it is removed only then.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/own_block.h"

namespace tandem::trainer {

struct TrainingCheckpoint {
    std::string folder;             // RUN/checkpoints
    std::vector<std::string> logs;  // files that the run adds lines to: copied as they are; rank 0's
    std::int64_t keep = 2;          // checkpoints, this one included
    // step, optimizer_steps, config, model, loop and mesh of what is written; rank 0's.
    Manifest manifest;
    // For tests of crashes: called as each part of the work is done, by each rank.
    std::function<void(const char* point)> at = [](const char*) {};
};

// What a checkpoint of these tensors takes on the disk, about, without the logs.
std::uint64_t training_checkpoint_bytes(const NamedTensors& tensors);

// Writes FOLDER/step-N. Collective over `world`, the ranks of the tensors' mesh. Throws SystemError; InvalidArgument as
// held_block does; NoRoom on every rank, and then nothing of it is left.
void write_training_checkpoint(const NamedTensors& tensors, comm::Communicator& world,
                               const TrainingCheckpoint& checkpoint);

// Overwrites the tensors' local elements. Assumes that the files have been verified. Throws ConfigError when a
// tensor is missing or differs in dtype or shape.
void read_training_checkpoint(const std::string& directory, const NamedTensors& tensors);

// Every FOLDER/step-N, newest first. Does not check whether they are whole.
std::vector<std::string> training_checkpoints(const std::string& folder);

// Removes what an interrupted write left in FOLDER; a checkpoint that was being replaced comes back.
void clean_up_checkpoints(const std::string& folder);

}  // namespace tandem::trainer
