#include "sync/capi/tensors.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <string>

#include "common/error.h"
#include "sync/capi/errors.h"

namespace tandem::sync::capi {
namespace {

constexpr int kMostDims = 64;

std::string name_of(const td_tensor& tensor) {
    enforce(tensor.name != nullptr && *tensor.name != '\0', "a tensor without a name");
    return tensor.name;
}

DType dtype_of_tensor(const std::string& name, std::int32_t number) {
    enforce(number >= TD_FLOAT32 && number <= TD_FLOAT16, "tensor '{}': there is no dtype number {}", name,
            number);
    return static_cast<DType>(number);
}

Device device_of_tensor(const std::string& name, const td_tensor& tensor) {
    if (tensor.device_type == TD_CPU) return {};
    enforce(tensor.device_type == TD_CUDA, "tensor '{}': device type {} is neither TD_CPU nor TD_CUDA", name,
            tensor.device_type);
    return {DeviceType::cuda, tensor.device_id};
}

Shape shape_of(const std::string& name, const std::int64_t* sizes, std::int32_t ndim, const char* which) {
    enforce(ndim >= 0 && ndim <= kMostDims, "tensor '{}' has {} dims", name, ndim);
    enforce(sizes != nullptr || ndim == 0, "tensor '{}': {} is NULL", name, which);
    std::int64_t elements = 1;
    for (std::int32_t d = 0; d < ndim; ++d) {
        enforce(sizes[d] >= 0, "tensor '{}': {}[{}] is {}", name, which, d, sizes[d]);
        enforce(!__builtin_mul_overflow(elements, std::max<std::int64_t>(sizes[d], 1), &elements) &&
                    elements <= std::int64_t{1} << 48,
                "tensor '{}': {} is too large", name, which);
    }
    return ndim == 0 ? Shape{} : Shape(sizes, sizes + ndim);
}

Placement placement_of(const std::string& name, const td_placement& placement) {
    switch (placement.kind) {
        case TD_REPLICATE:
            return Replicate();
        case TD_SHARD:
            return Shard(placement.dim);
        case TD_STRIDED_SHARD:
            enforce(placement.split_factor >= 1, "tensor '{}': a split factor of {}", name,
                    placement.split_factor);
            return StridedShard(placement.dim, placement.split_factor);
        default:
            throw BadInput(fmt::format("tensor '{}': there is no placement number {}", name, placement.kind));
    }
}

Placements placements_of(const std::string& name, const td_tensor& tensor, const DeviceMesh& mesh) {
    if (tensor.mesh == nullptr) return {Replicate()};
    enforce(tensor.placements != nullptr, "tensor '{}': placements is NULL", name);
    Placements placements;
    for (int axis = 0; axis < mesh.ndim(); ++axis)
        placements.push_back(placement_of(name, tensor.placements[axis]));
    return placements;
}

bool same_layout(const NamedTensor& a, const NamedTensor& b) {
    return a.name == b.name && a.tensor.shape() == b.tensor.shape() && a.tensor.dtype() == b.tensor.dtype() &&
           a.tensor.placements() == b.tensor.placements() &&
           a.tensor.mesh().sizes() == b.tensor.mesh().sizes() &&
           a.tensor.mesh().ranks() == b.tensor.mesh().ranks() &&
           a.tensor.local().device() == b.tensor.local().device();
}

}  // namespace

engine::TensorInfo info_of(const td_tensor& tensor) {
    const std::string name = name_of(tensor);
    return {name, shape_of(name, tensor.global_shape, tensor.ndim, "global_shape"),
            dtype_of_tensor(name, tensor.dtype)};
}

const DeviceMesh& PublishedTensors::mesh_of(const td_mesh* given) {
    MeshKey key{{world_->size()}, std::vector<int>(static_cast<std::size_t>(world_->size()))};
    std::iota(key.second.begin(), key.second.end(), 0);
    if (given != nullptr) {
        const td_mesh mesh = read_struct(given, "td_mesh");
        enforce(mesh.ndim >= 1 && mesh.ndim <= kMostDims, "a mesh of {} axes", mesh.ndim);
        enforce(mesh.sizes != nullptr, "td_mesh.sizes is NULL");
        key.first.assign(mesh.sizes, mesh.sizes + mesh.ndim);
        std::int64_t size = 1;
        for (const int axis : key.first) {
            enforce(axis >= 1, "a mesh axis of size {}", axis);
            size *= axis;
            enforce(size <= world_->size(), "a mesh of more ranks than the {} of the session",
                    world_->size());
        }
        key.second.resize(static_cast<std::size_t>(size));
        if (mesh.ranks != nullptr) std::copy_n(mesh.ranks, key.second.size(), key.second.begin());
    }
    const auto known = meshes_.find(key);
    if (known != meshes_.end()) return known->second;

    const std::vector<int>& ranks = key.second;
    enforce(std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size(), "a mesh names a rank twice");
    for (const int rank : ranks)
        enforce(rank >= 0 && rank < world_->size(), "a mesh names rank {} of {}", rank, world_->size());
    enforce(std::find(ranks.begin(), ranks.end(), world_->rank()) != ranks.end(),
            "rank {} publishes a tensor on a mesh that it is not in", world_->rank());
    const bool whole = ranks == world_->global_ranks();
    const auto group = whole ? world_ : world_->split(ranks, fmt::format("mesh {}", meshes_.size()));
    std::vector<std::string> names;
    for (std::size_t axis = 0; axis < key.first.size(); ++axis) names.push_back(fmt::format("axis{}", axis));
    DeviceMesh mesh = DeviceMesh::create(group, key.first, std::move(names));
    return meshes_.emplace(std::move(key), std::move(mesh)).first->second;
}

NamedTensor PublishedTensors::read(const td_tensor& tensor) {
    const std::string name = name_of(tensor);
    const DType dtype = dtype_of_tensor(name, tensor.dtype);
    const Device device = device_of_tensor(name, tensor);
    const Shape global = shape_of(name, tensor.global_shape, tensor.ndim, "global_shape");
    const DeviceMesh& mesh = mesh_of(tensor.mesh);
    const Placements placements =
        checked_placements(placements_of(name, tensor, mesh), mesh.ndim(), static_cast<int>(global.size()));
    const Shape expected = local_shape(global, mesh.sizes(), placements, mesh.coordinates());
    if (tensor.local_shape != nullptr) {
        const Shape local = shape_of(name, tensor.local_shape, tensor.ndim, "local_shape");
        enforce(local == expected, "tensor '{}': rank {} holds {}, but {} of {} gives it {}", name,
                world_->rank(), to_string(local), to_string(placements), to_string(global),
                to_string(expected));
    }
    const std::size_t bytes = static_cast<std::size_t>(numel(expected)) * dtype_size(dtype);
    enforce(tensor.data != nullptr || bytes == 0, "tensor '{}': data is NULL", name);
    const Span memory{static_cast<std::byte*>(tensor.data), bytes};
    return {name,
            DTensor::from_local(Tensor::borrow(memory, expected, dtype, device), mesh, placements, global)};
}

void PublishedTensors::set(const td_tensor* tensors, std::size_t count) {
    enforce(tensors != nullptr || count == 0, "tensors is NULL");
    std::vector<NamedTensor> fresh;
    std::set<std::string> names;
    const std::byte* at = reinterpret_cast<const std::byte*>(tensors);
    for (std::size_t i = 0; i < count; ++i) {
        const auto* tensor = reinterpret_cast<const td_tensor*>(at);
        fresh.push_back(read(read_struct(tensor, "td_tensor")));
        enforce(names.insert(fresh.back().name).second, "tensor '{}' is published twice", fresh.back().name);
        at += tensor->size;
    }
    if (!tensors_.empty()) {
        enforce(fresh.size() == tensors_.size(), "{} tensors are published, {} were before", fresh.size(),
                tensors_.size());
        for (std::size_t i = 0; i < fresh.size(); ++i) {
            enforce(same_layout(fresh[i], tensors_[i]),
                    "tensor '{}' is not as it was published first: names, shapes, dtypes and layouts stay",
                    fresh[i].name);
        }
    }
    tensors_ = std::move(fresh);
}

bool PublishedTensors::all_shared() const {
    const Span shared = world_->shared_memory().memory;
    const std::less_equal<const std::byte*> not_above;
    return std::all_of(tensors_.begin(), tensors_.end(), [&](const NamedTensor& tensor) {
        const Span local = tensor.tensor.local().span();
        return local.bytes == 0 || (shared.bytes > 0 && not_above(shared.data, local.data) &&
                                    not_above(local.data + local.bytes, shared.data + shared.bytes));
    });
}

}  // namespace tandem::sync::capi
