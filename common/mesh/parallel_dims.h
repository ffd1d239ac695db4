// TorchTitan's ParallelDims: from seven degrees of parallelism to the meshes that every part of a trainer
// asks for, all cut from one world mesh.
//
//   mesh         axes                                    where
//   dataloading  (pp, batch, cp, tp)                     batch = dp_replicate * dp_shard
//   loss         one axis                                loss  = batch * cp
//   dense        (pp, dp_replicate, fsdp, tp)            fsdp  = dp_shard * cp
//   sparse       (pp, dp_replicate, efsdp, ep, etp)      efsdp = fsdp * tp / (ep * etp)
//   train        (pp, dp_replicate, dp_shard, cp, tp)    and beside it dp, dp_shard_cp and dp_cp, flattened
//
// An axis "exists" when its size is above 1; efsdp when ep is, whatever its own size (experts need their FSDP
// wrapper).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/mesh/device_mesh.h"

namespace tandem {

struct ParallelDegrees {
    int dp_replicate = 1;
    int dp_shard = -1;  // -1: what the others leave of the ranks
    int cp = 1;
    int tp = 1;
    int pp = 1;
    int ep = 1;
    int etp = 1;
    friend bool operator==(const ParallelDegrees&, const ParallelDegrees&) = default;
};

// Not thread-safe: meshes are built by the first call that needs one. Copies share them.
class ParallelDims {
  public:
    // Without communication: for planning and inspection. Both throw InvalidArgument that names the numbers
    // that disagree.
    ParallelDims(const ParallelDegrees& degrees, int world_size, int rank = 0);
    ParallelDims(const ParallelDegrees& degrees, std::shared_ptr<comm::Communicator> world);

    // How many ranks the degrees need; dp_shard is given.
    static std::int64_t ranks_of(const ParallelDegrees& degrees);

    const ParallelDegrees& degrees() const { return degrees_; }  // dp_shard inferred
    int world_size() const { return world_size_; }

    // pp, batch, loss, dp_replicate, fsdp, cp, tp, ep, efsdp, etp.
    static const std::vector<std::string>& axis_names();
    int axis_size(const std::string& axis) const;
    bool axis_exists(const std::string& axis) const;

    // One axis, or several of dataloading, dense or sparse, in that mesh's order. Nothing when one of them
    // does not exist. Throws InvalidArgument on a name that is no axis, or axes that no mesh has together.
    std::optional<DeviceMesh> get_optional_mesh(const std::vector<std::string>& axes) const;
    std::optional<DeviceMesh> get_optional_mesh(const char* axis) const {
        return get_optional_mesh({std::string(axis)});
    }
    // Throws InvalidArgument when an axis does not exist.
    DeviceMesh get_mesh(const std::vector<std::string>& axes) const;
    DeviceMesh get_mesh(const char* axis) const { return get_mesh({std::string(axis)}); }
    // The mesh of an axis whether it exists or not.
    const DeviceMesh& axis_mesh(const std::string& axis) const;
    // Axes of more than one rank, in the order of axis_names.
    std::vector<std::pair<std::string, DeviceMesh>> one_dimensional_meshes() const;
    const DeviceMesh& world_mesh() const;
    const DeviceMesh& train_mesh() const;  // slice({"dp_cp"}) and the like work on it
    bool meshes_built() const { return meshes_ != nullptr; }

    bool dp_enabled() const { return degrees_.dp_replicate > 1 || degrees_.dp_shard > 1; }
    bool dp_replicate_enabled() const { return degrees_.dp_replicate > 1; }
    bool dp_shard_enabled() const { return degrees_.dp_shard > 1; }
    bool cp_enabled() const { return degrees_.cp > 1; }
    bool dp_cp_enabled() const { return dp_enabled() || cp_enabled(); }
    bool fsdp_enabled() const { return dp_shard_enabled() || cp_enabled(); }
    bool tp_enabled() const { return degrees_.tp > 1; }
    bool pp_enabled() const { return degrees_.pp > 1; }
    bool ep_enabled() const { return degrees_.ep > 1; }
    bool etp_enabled() const { return degrees_.etp > 1; }
    int fsdp_gradient_divide_factor() const {
        return degrees_.dp_replicate * degrees_.dp_shard * degrees_.cp;
    }
    int non_data_parallel_size() const { return degrees_.cp * degrees_.tp * degrees_.pp; }
    int seq_len_divisor() const { return degrees_.tp * degrees_.cp * 2; }  // zigzag halves what cp gives

  private:
    struct Meshes;
    const Meshes& meshes() const;

    ParallelDegrees degrees_;
    int world_size_ = 1;
    int rank_ = 0;
    std::shared_ptr<comm::Communicator> world_;  // null: abstract
    mutable std::shared_ptr<const Meshes> meshes_;
};

}  // namespace tandem
