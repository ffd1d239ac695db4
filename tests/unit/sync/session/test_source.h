// A WeightSource whose every element follows from tensor, position and step, so that anybody can compute what
// a whole tensor must hold. For tests and benches of the sync.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/device/export.h"
#include "common/dtensor/dtensor.h"
#include "engine_adapter/engine.h"
#include "sync/weight_source.h"
#include "tests/support/device_bytes.h"

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

using ElementValue = std::function<float(std::size_t t, std::size_t i, int step)>;

inline void put_value(std::byte* to, DType dtype, float value) {
    if (dtype == DType::float32)
        *reinterpret_cast<float*>(to) = value;
    else if (dtype == DType::float16)
        *reinterpret_cast<_Float16*>(to) = static_cast<_Float16>(value);
    else
        *reinterpret_cast<bfloat16*>(to) = bfloat16(value);
}

class TestSource final : public WeightSource {
  public:
    // layouts[t]: the placements of tensor t on `mesh`. Shards lie in memory that engines can map.
    TestSource(const std::vector<engine::TensorInfo>& tensors, const DeviceMesh& mesh,
               const std::vector<Placements>& layouts, DType dtype, ElementValue value = element_value,
               Device device = {})
        : value_(std::move(value)), device_(device) {
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            const Shape local =
                local_layout(tensors[t].shape, mesh.sizes(), layouts[t], mesh.coordinates()).shape;
            const Tensor memory = device.type == DeviceType::cpu
                                      ? Tensor::empty(local, dtype, "test source", mesh.memory())
                                      : on_gpu(local, dtype);
            tensors_.push_back(
                {tensors[t].name, DTensor::from_local(memory, mesh, layouts[t], tensors[t].shape)});
        }
        set_step(0);
    }

    void set_step(int step) {
        for (std::size_t t = 0; t < tensors_.size(); ++t) fill(t, step);
    }

    const std::vector<NamedTensor>& tensors() const override { return tensors_; }
    Event ready() const override { return {}; }
    // From here on the tensor's values lie (and are written) there.
    void move_to(std::size_t t, const Tensor& memory) {
        const DTensor& now = tensors_[t].tensor;
        tensors_[t].tensor = DTensor::from_local(memory, now.mesh(), now.placements(), now.shape());
    }

  private:
    // Element by element: its global index follows from the runs that the rank holds of every dim.
    void fill(std::size_t t, int step) {
        const DTensor& tensor = tensors_[t].tensor;
        const LocalLayout layout = tensor.layout();
        std::vector<std::vector<std::int64_t>> global(layout.shape.size());  // [dim][local index]
        for (std::size_t d = 0; d < global.size(); ++d) {
            for (const auto& [start, stop] : layout.runs[d]) {
                for (std::int64_t i = start; i < stop; ++i) global[d].push_back(i);
            }
        }
        const std::size_t width = dtype_size(tensor.dtype());
        std::vector<std::byte> bytes(tensor.local().bytes());
        for (std::int64_t i = 0; i < tensor.local().numel(); ++i) {
            std::int64_t rest = i;
            std::int64_t index = 0;
            std::int64_t place = 1;
            for (std::size_t d = global.size(); d-- > 0;) {
                const auto size = static_cast<std::int64_t>(global[d].size());
                index += global[d][static_cast<std::size_t>(rest % size)] * place;
                place *= tensor.shape()[d];
                rest /= size;
            }
            put_value(bytes.data() + static_cast<std::size_t>(i) * width, tensor.dtype(),
                      value_(t, static_cast<std::size_t>(index), step));
        }
        test::upload(device_, {bytes.data(), bytes.size()}, tensor.local().span());
    }

    Tensor on_gpu(const Shape& shape, DType dtype) {
        const auto bytes = static_cast<std::size_t>(numel(shape)) * dtype_size(dtype);
        arenas_.push_back(ExportArena::create(device_, std::max<std::size_t>(bytes, 1), "test source"));
        return Tensor::borrow(arenas_.back().span().subspan(0, bytes), shape, dtype, device_);
    }

    ElementValue value_;
    Device device_;
    std::vector<ExportArena> arenas_;  // of a GPU
    std::vector<NamedTensor> tensors_;
};

}  // namespace tandem::sync
