// A WeightSource whose every element follows from tensor, position and step, so that anybody can compute what
// a whole tensor must hold. For tests and benches of the sync.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/dtensor/dtensor.h"
#include "engine_adapter/engine.h"
#include "sync/plan/assign.h"
#include "sync/plan/holdings.h"
#include "sync/weight_source.h"

namespace tandem::sync {

// The value of element `i` of tensor `t` at `step`: 16 significant bits, so that a cast to bfloat16 has to
// round.
inline float element_value(std::size_t t, std::size_t i, int step) {
    std::uint64_t x = i * 0x9e3779b97f4a7c15ull + t * 0xbf58476d1ce4e5b9ull +
                      static_cast<std::uint32_t>(step) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    return static_cast<float>(static_cast<std::int64_t>(x & 0x1ffff) - 0x10000) / 65536.0f;
}

inline void put_value(std::byte* to, DType dtype, float value) {
    if (dtype == DType::float32)
        *reinterpret_cast<float*>(to) = value;
    else
        *reinterpret_cast<bfloat16*>(to) = bfloat16(value);
}

class TestSource final : public WeightSource {
  public:
    // layouts[t]: the placements of tensor t on `mesh`.
    TestSource(const std::vector<engine::TensorInfo>& tensors, const DeviceMesh& mesh,
               const std::vector<Placements>& layouts, DType dtype) {
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            std::vector<int> sizes, at;
            for (int axis = 0; axis < mesh.ndim(); ++axis) {
                sizes.push_back(mesh.size(axis));
                at.push_back(mesh.coordinate(axis));
            }
            const Shape local = local_layout(tensors[t].shape, sizes, layouts[t], at).shape;
            held_.push_back(holdings(tensors[t].shape, sizes, layouts[t], at, 0));
            tensors_.push_back(
                {tensors[t].name, DTensor::from_local(Tensor::empty(local, dtype, "test source"), mesh,
                                                      layouts[t], tensors[t].shape)});
        }
        set_step(0);
    }

    void set_step(int step) {
        for (std::size_t t = 0; t < tensors_.size(); ++t) {
            const DTensor& tensor = tensors_[t].tensor;
            const auto row = static_cast<std::size_t>(row_elements(tensor.shape()));
            for (const Holding& h : held_[t]) {
                const std::size_t first = static_cast<std::size_t>(h.start) * row;
                const std::size_t local = static_cast<std::size_t>(h.local) * row;
                const std::size_t count = static_cast<std::size_t>(h.stop - h.start) * row;
                const std::size_t width = dtype_size(tensor.dtype());
                for (std::size_t i = 0; i < count; ++i) {
                    put_value(tensor.local().raw() + (local + i) * width, tensor.dtype(),
                              element_value(t, first + i, step));
                }
            }
        }
    }

    const std::vector<NamedTensor>& tensors() const override { return tensors_; }
    Event ready() const override { return {}; }

  private:
    std::vector<NamedTensor> tensors_;
    std::vector<std::vector<Holding>> held_;
};

}  // namespace tandem::sync
