// A tensor spread over a mesh: the local piece, the mesh, a placement for every mesh axis, and the global shape.
// The local tensor is never padded; padding exists only inside collectives.
#pragma once

#include <optional>

#include "common/dtensor/placement.h"
#include "common/mesh/device_mesh.h"
#include "common/tensor/tensor.h"

namespace tandem {

class PendingDTensor;

class DTensor {
  public:
    DTensor() = default;
    // Wraps a local piece. Throws InvalidArgument when its shape is not what the layout gives this rank.
    static DTensor from_local(Tensor local, DeviceMesh mesh, Placements placements, Shape global_shape);
    // Cuts a tensor that every rank holds in full.
    static DTensor distribute(const Tensor& full, DeviceMesh mesh, Placements placements);

    const Tensor& local() const { return local_; }
    const DeviceMesh& mesh() const { return *mesh_; }
    const Placements& placements() const { return placements_; }
    const Shape& shape() const { return global_shape_; }  // global
    DType dtype() const { return local_.dtype(); }

    // Out of place, blocking / asynchronous on `stream`. Collective over the mesh.
    DTensor redistribute(const Placements& to) const;
    PendingDTensor redistribute_async(const Placements& to, Stream& stream) const;
    Tensor full_tensor() const;  // redistribute to Replicate everywhere, local piece

  private:
    Tensor local_;
    std::optional<DeviceMesh> mesh_;
    Placements placements_;
    Shape global_shape_;
};

// The result of redistribute_async. get() is valid after wait() or after `event()` on the consumer's stream.
class PendingDTensor {
  public:
    PendingDTensor(DTensor result, Event event) : result_(std::move(result)), event_(std::move(event)) {}
    const Event& event() const { return event_; }
    DTensor wait(Deadline deadline) const {
        event_.wait(deadline);
        return result_;
    }

  private:
    DTensor result_;
    Event event_;
};

// What a layout gives the rank at `coordinates`: local shape, and for every tensor dim the runs [start, stop) of global
// indices in local order (several with strided shards).
struct LocalLayout {
    Shape shape;
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> runs;  // [tensor dim][run]
};
LocalLayout local_layout(const Shape& global_shape, const std::vector<int>& mesh_sizes, const Placements& placements,
                         const std::vector<int>& coordinates);

}  // namespace tandem
