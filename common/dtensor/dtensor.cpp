#include "common/dtensor/dtensor.h"

#include "common/dtensor/conversions.h"
#include "common/error.h"

namespace tandem {

DTensor DTensor::from_local(Tensor local, DeviceMesh mesh, Placements placements, Shape global_shape) {
    DTensor result;
    result.placements_ =
        checked_placements(std::move(placements), mesh.ndim(), static_cast<int>(global_shape.size()));
    const Shape expected = local_shape(global_shape, mesh.sizes(), result.placements_, mesh.coordinates());
    require(local.shape() == expected, [&] {
        return fmt::format("local piece of shape {}, but {} of {} gives rank {} a piece of {}",
                           to_string(local.shape()), to_string(result.placements_), to_string(global_shape),
                           mesh.rank(), to_string(expected));
    });
    result.local_ = std::move(local);
    result.mesh_ = std::move(mesh);
    result.global_shape_ = std::move(global_shape);
    return result;
}

DTensor DTensor::distribute(const Tensor& full, DeviceMesh mesh, Placements placements) {
    const Placements to = checked_placements(std::move(placements), mesh.ndim(), full.ndim());
    for (const Placement& placement : to) {
        require(!placement.is_partial(), [&] {
            return fmt::format("cannot distribute a tensor as {}: use R or S(dim)", to_string(to));
        });
    }
    const Placements whole(to.size(), Replicate());
    return from_local(full, std::move(mesh), whole, full.shape()).redistribute(to);
}

DTensor DTensor::elsewhere(Shape global_shape, DType dtype) {
    DTensor result;
    Shape none = global_shape;
    none.at(0) = 0;
    result.local_ = Tensor::empty(std::move(none), dtype, "elsewhere");
    result.global_shape_ = std::move(global_shape);
    return result;
}

LocalLayout DTensor::layout() const {
    return local_layout(global_shape_, mesh_->sizes(), placements_, mesh_->coordinates());
}

DTensor DTensor::redistribute(const Placements& to) const {
    Stream stream = Stream::make_inline();
    return redistribute_async(to, stream).get();
}

PendingDTensor DTensor::redistribute_async(const Placements& to, Stream& stream,
                                           PartialTarget partial) const {
    DTensor result = *this;
    result.placements_ = checked_placements(to, mesh_->ndim(), static_cast<int>(global_shape_.size()));
    const auto steps = plan_redistribute(global_shape_, mesh_->sizes(), mesh_->coordinates(), placements_,
                                         result.placements_, partial);
    for (const RedistributeStep& step : steps) result.local_ = convert(step, result.local_, *mesh_, stream);
    // The groups live in the mesh's root: it stays until the queue has run its collectives.
    if (!stream.is_inline()) stream.enqueue([mesh = *mesh_] { (void)mesh; });
    return {std::move(result), stream.record()};
}

Tensor DTensor::full_tensor() const {
    return redistribute(Placements(placements_.size(), Replicate())).local();
}

DTensor redistribute_backward(const DTensor& grad, const Placements& from, const Placements& to) {
    const int ndim = static_cast<int>(grad.shape().size());
    require(grad.placements() == checked_placements(to, grad.mesh().ndim(), ndim), [&] {
        return fmt::format(
            "gradient at {}, but the forward's result was at {}: redistribute the gradient there first",
            to_string(grad.placements()), to_string(to));
    });
    return grad.redistribute(gradient_placements(checked_placements(from, grad.mesh().ndim(), ndim)));
}

}  // namespace tandem
