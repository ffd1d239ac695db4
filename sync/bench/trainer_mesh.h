// The trainer's mesh of a bench or a plan: sizes alone ("2,1"), or axes by name ("dp=4,dp_replicate=2,tp=2,pp=2"), as a
// trainer's configuration has them. With names parameters lie where a trainer with that mesh holds them (common/sharding): in
// stages, of which a rank has one, where there is a pp.
#pragma once

#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/mesh/parallel_dims.h"
#include "common/sharding/holding.h"
#include "sync/bench/shapes.h"

namespace tandem::sync {

struct TrainerMesh {
    TrainerMesh(std::initializer_list<int> given = {}) : sizes(given) {}
    // Throws BadInput: neither form, an axis twice, one that is none (ep), or degrees that do not go together.
    static TrainerMesh parse(const std::string& text);

    bool named() const { return !axes.empty(); }
    std::int64_t ranks() const;  // at most 2^31; sizes are positive
    std::string text() const;
    nlohmann::json json() const;      // [2, 1], or {"dp": 4, "tp": 2}
    ParallelDegrees degrees() const;  // of a named one; dp includes dp_replicate
    // All ranks, row-major: (pp, dp_replicate, fsdp, tp) of a named one, else (dp, cp), or dp alone.
    DeviceMesh over(std::shared_ptr<comm::Communicator> world) const;
    DeviceMesh abstract(int rank = 0) const;
    // Throws InvalidArgument where tensor parallelism or the stages do not fit: naming the degrees that do, or the tensor
    // where only tensors are known.
    void check_fits(const ModelShapes& model) const;

    std::vector<int> sizes;
    std::vector<std::string> axes;  // of each size; empty: it has no names
};

// "2,1", or "dp=4,tp=2", of what json() made.
std::string mesh_text(const nlohmann::json& mesh);

// Where the tensors of a model lie. Those that are cut alike share an entry, as a mesh lists all its ranks.
struct Holdings {
    std::vector<Holding> kinds;
    std::vector<int> kind_of;  // [tensor]; -1: on ranks of other stages alone
    bool has(std::size_t tensor) const { return kind_of[tensor] >= 0; }
    const Holding& of(std::size_t tensor) const { return kinds[static_cast<std::size_t>(kind_of[tensor])]; }
};

// Of the rank that sees this mesh, (pp, dp_replicate, fsdp, tp) of a named one: what its stage has. Throws InvalidArgument as
// check_fits does.
Holdings holdings_of(const DeviceMesh& mesh, const std::vector<model::ParameterSpec>& model);
// Of all stages of a named one: each tensor as the first rank that has it sees it.
Holdings all_holdings(const TrainerMesh& mesh, const std::vector<model::ParameterSpec>& model);

}  // namespace tandem::sync
