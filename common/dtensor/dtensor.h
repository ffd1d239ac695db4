// A tensor spread over a mesh: the local piece, the mesh, a placement for every mesh axis, and the global
// shape. The local tensor is never padded; padding exists only inside collectives.
#pragma once

#include <optional>
#include <utility>

#include "common/dtensor/layout.h"
#include "common/dtensor/placement.h"
#include "common/dtensor/redistribute_plan.h"
#include "common/mesh/device_mesh.h"
#include "common/tensor/tensor.h"

namespace tandem {

class PendingDTensor;

class DTensor {
  public:
    DTensor() = default;  // undefined
    // Wraps a local piece. Throws InvalidArgument when its shape is not what the layout gives this rank.
    static DTensor from_local(Tensor local, DeviceMesh mesh, Placements placements, Shape global_shape);
    // Cuts a tensor that every rank holds in full: a copy, or the tensor itself where nothing is cut. No
    // communication. Throws InvalidArgument on Partial.
    static DTensor distribute(const Tensor& full, DeviceMesh mesh, Placements placements);

    // A tensor that lies on other ranks alone, as on those of another pipeline stage: its shape and dtype, an empty local piece
    // in host memory, and no mesh, placements or layout.
    static DTensor elsewhere(Shape global_shape, DType dtype);

    bool defined() const { return local_.defined(); }
    bool is_here() const { return mesh_.has_value(); }
    const Tensor& local() const { return local_; }
    const DeviceMesh& mesh() const { return *mesh_; }
    const Placements& placements() const { return placements_; }
    const Shape& shape() const { return global_shape_; }  // global
    DType dtype() const { return local_.dtype(); }
    LocalLayout layout() const;  // which global indices the local piece holds

    // Out of place, blocking / asynchronous on `stream`. Collective over the mesh. Where nothing has to
    // change, the result shares this tensor's memory. A target of Partial is refused unless that axis is so
    // already.
    DTensor redistribute(const Placements& to) const;
    PendingDTensor redistribute_async(const Placements& to, Stream& stream,
                                      PartialTarget partial = PartialTarget::refuse) const;
    Tensor full_tensor() const;  // redistribute to Replicate everywhere, local piece

  private:
    Tensor local_;
    std::optional<DeviceMesh> mesh_;
    Placements placements_;
    Shape global_shape_;
};

// The result of redistribute_async. get() is valid after wait() or after `event()` on the consumer's stream.
// Dropping it does not cancel the work: the stream keeps every buffer alive until it is done with it.
class PendingDTensor {
  public:
    PendingDTensor(DTensor result, Event event) : result_(std::move(result)), event_(std::move(event)) {}
    const Event& event() const { return event_; }
    // The result, whose values may not have landed yet: for work queued behind event().
    const DTensor& get() const { return result_; }
    DTensor wait(Deadline deadline) const {
        event_.wait(deadline);
        return result_;
    }

  private:
    DTensor result_;
    Event event_;
};

// The gradient of `y = x.redistribute(to)` with x at `from`: grad, which has y's placements `to`, brought to
// x's, and kept Replicate where x was Partial (each term of a sum has the whole gradient; PyTorch does the
// same for every reduction). Collective over the mesh.
DTensor redistribute_backward(const DTensor& grad, const Placements& from, const Placements& to);

}  // namespace tandem
