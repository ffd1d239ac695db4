// Tensors that lie as a policy's do under tensor parallelism, FSDP and replicas, in sizes that nothing divides: for what works
// on a rank's block without a model.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/communicator.h"
#include "common/dtensor/dtensor.h"
#include "common/model/parameters.h"

namespace tandem::trainer::testing {

struct BlockMesh {
    int dp_replicate = 1;
    int fsdp = 1;
    int tp = 1;
    int ranks() const { return dp_replicate * fsdp * tp; }
    std::string text() const;  // "1 x 2 x 3"
};

inline constexpr BlockMesh kBlockMeshes[] = {{1, 1, 1}, {1, 4, 1}, {2, 2, 1}, {1, 1, 2}, {1, 2, 2}, {2, 1, 2},
                                             {1, 1, 3}, {1, 2, 3}, {2, 1, 3}, {1, 1, 4}, {1, 5, 1}};

// Cut in every way; empty shards of rows and of columns. The same names and shapes for every tp.
std::vector<model::ParameterSpec> block_specs(int tp);
// Another number at every element of every tensor; none is a bfloat16.
Tensor values_of(const model::ParameterSpec& spec);

// A spec's tensor on a rank of a mesh, of float32 or as `full` is, on device_of(rank).
DTensor as_held(const std::shared_ptr<comm::Communicator>& world, const BlockMesh& mesh,
                const model::ParameterSpec& spec, const Tensor& full);
// block_specs with values_of.
std::vector<std::pair<std::string, DTensor>> block_tensors(const std::shared_ptr<comm::Communicator>& world,
                                                           const BlockMesh& mesh);
std::vector<float> values_on_host(const Tensor& tensor);

}  // namespace tandem::trainer::testing
