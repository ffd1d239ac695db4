#include "sync/bench/source.h"

#include "sync/plan/holdings.h"

namespace tandem::sync {

SyntheticSource::SyntheticSource(const std::vector<engine::TensorInfo>& tensors, const DeviceMesh& mesh,
                                 DType dtype, bool shard_all) {
    Placements placements{Shard(0)};
    std::vector<int> sizes;
    std::vector<int> at;
    for (int axis = 0; axis < mesh.ndim(); ++axis) {
        if (axis > 0) placements.push_back(shard_all ? Shard(0) : Replicate());
        sizes.push_back(mesh.size(axis));
        at.push_back(mesh.coordinate(axis));
    }
    for (const engine::TensorInfo& info : tensors) {
        const Shape local = local_layout(info.shape, sizes, placements, at).shape;
        tensors_.push_back({info.name, DTensor::from_local(Tensor::empty(local, dtype, "synthetic weights"),
                                                           mesh, placements, info.shape)});
        const std::vector<Holding> held = holdings(tensors_.back().tensor, 0);
        const std::int64_t first_row = held.empty() ? 0 : held.front().start;
        seeds_.push_back(tensors_.size() * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(first_row));
    }
    set_step(0);
}

void SyntheticSource::set_step(int step) {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const Tensor& local = tensors_[t].tensor.local();
        std::uint64_t state = seeds_[t] ^ (static_cast<std::uint64_t>(step) * 0xbf58476d1ce4e5b9u);
        const auto next = [&state] {  // xorshift, as a number in [-1, 1)
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            return static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-31f;
        };
        if (state == 0) state = 1;
        if (local.dtype() == DType::bfloat16) {
            for (bfloat16& value : local.values<bfloat16>()) value = bfloat16(next());
        } else {
            for (float& value : local.values<float>()) value = next();
        }
    }
}

}  // namespace tandem::sync
