// A caller's tensors as the session's source: DTensors over borrowed memory.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/comm/communicator.h"
#include "common/mesh/device_mesh.h"
#include "engine_adapter/engine.h"
#include "sync/capi/tandem_sync.h"
#include "sync/session/said_architecture.h"
#include "sync/weight_source.h"

namespace tandem::sync::capi {

// Name, global shape and dtype. Throws BadInput naming the tensor.
engine::TensorInfo info_of(const td_tensor& tensor);

class PublishedTensors final : public WeightSource {
  public:
    explicit PublishedTensors(std::shared_ptr<comm::Communicator> world) : world_(std::move(world)) {}

    // Throws BadInput naming the tensor, or one whose name, shape, dtype or layout is not what it was; what was set before
    // then stays. The first call makes the groups of meshes that are not all ranks: collective over each.
    void set(const td_tensor* tensors, std::size_t count);
    void clear() { tensors_.clear(); }
    // Whether every shard lies in memory that engines can open.
    bool all_shared() const;

    void describe(const SaidArchitecture& architecture) { architecture_ = architecture; }

    const std::vector<NamedTensor>& tensors() const override { return tensors_; }
    const model::Architecture* architecture() const override { return architecture_.get(); }
    Event ready() const override { return {}; }

  private:
    using MeshKey = std::pair<std::vector<int>, std::vector<int>>;  // sizes, ranks

    NamedTensor read(const td_tensor& tensor);
    const DeviceMesh& mesh_of(const td_mesh* mesh);

    std::shared_ptr<comm::Communicator> world_;
    std::map<MeshKey, DeviceMesh> meshes_;
    std::vector<NamedTensor> tensors_;
    SaidArchitecture architecture_;
};

}  // namespace tandem::sync::capi
