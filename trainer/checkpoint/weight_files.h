// The safetensors files of a Hugging Face directory: where each tensor lies in them, and the blocks that ranks write into place
// and read out of it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/model/safetensors.h"
#include "common/model/safetensors_layout.h"
#include "trainer/checkpoint/own_block.h"

namespace tandem::trainer {

struct WeightFile {
    std::string name;                  // in its folder
    std::vector<std::size_t> tensors;  // indices of those that it holds
    model::SafetensorsLayout layout;   // of them, in that order
};

// The same on every rank. A tensor is never cut: a file is closed before the tensor that would make it larger than asked.
std::vector<WeightFile> plan_weight_files(const NamedTensors& tensors, DType dtype, std::size_t shard_bytes);

// Whole in size, with their heads; by one rank, before any writes its blocks. `folder` is emptied. Throws NoRoom, SystemError.
void create_weight_files(const std::vector<WeightFile>& files, const std::string& folder);

// This rank's part, pushed to the disk. `dtype` is that of the plan; casts through 8 MiB. A block of less than whole rows takes
// a system call a row. Throws SystemError; InvalidArgument as held_block does.
void write_own_blocks(const std::vector<WeightFile>& files, const NamedTensors& tensors,
                      const std::string& folder, DType dtype);

// A block of a tensor of the files, cast to `to`: as many elements, in host memory. Throws ConfigError when it is missing.
void read_weight_block(const model::Safetensors& files, const std::string& name, const TensorBlock& block,
                       const Tensor& to);
// Overwrites the tensors' local elements with DIR's. Throws ConfigError when a tensor is missing or of another shape.
void read_own_blocks(const NamedTensors& tensors, const std::string& directory);

}  // namespace tandem::trainer
