// Where a parameter lies on a trainer's mesh.
#pragma once

#include <string>

#include "common/dtensor/placement.h"
#include "common/mesh/device_mesh.h"
#include "common/model/parameters.h"

namespace tandem {

struct Holding {
    DeviceMesh mesh;  // all ranks, its axes in the order of cutting
    Placements placements;
};

// On a mesh whose last axis may be "tp" and one of whose others, `shards`, is FSDP's; ranks along what is left are
// replicas. (dp_replicate, fsdp, tp) becomes (dp_replicate, tp, fsdp), or (dp_replicate, tp_heads, tp_copies, fsdp); a
// tensor of no dims lies whole on every rank. Throws InvalidArgument as tensor_cut does.
Holding holding_of(const DeviceMesh& mesh, const std::string& shards, const model::ParameterSpec& spec);
// The same on the ranks along `both` as well, as replicas: a table that two stages of a pipeline have (DeviceMesh::first_and).
Holding shared_holding(const DeviceMesh& both, const Holding& of_stage);

}  // namespace tandem
