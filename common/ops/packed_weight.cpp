#include "common/ops/packed_weight.h"

#include <omp.h>

#include "common/ops/cpu/check.h"
#include "common/ops/cpu/matmul_primitive.h"
#include "common/ops/matmul.h"

namespace tandem::ops {

void PackedWeight::pack(const Tensor& weight, std::string_view tag) {
    detail::check_floating("pack", "weight", weight);
    detail::check_ndim("pack", "weight", weight, 2);
    const bool as_before =
        weight_.defined() && weight_.shape() == weight.shape() && weight_.dtype() == weight.dtype();
    weight_ = weight;
    if (!as_before) packed_ = Buffer();
    if (weight.numel() == 0 || weight.device().type != DeviceType::cpu) return;
    omp_set_num_threads(compute_threads());
    const auto layout = detail::packed_layout(weight.dim(0), weight.dim(1), weight.dtype());
    if (layout.get_size() == 0) return;
    if (packed_.bytes() == 0) packed_ = Buffer(layout.get_size(), tag);
    detail::pack_weight(weight.dim(0), weight.dim(1), weight.dtype(), weight.raw(), packed_.data());
}

void PackedWeight::point(const Tensor& weight) {
    weight_ = weight;
    packed_ = Buffer();
}

void linear(Stream& stream, const Tensor& x, const PackedWeight& weight, const Tensor& bias, Tensor y) {
    if (weight.packed().bytes == 0) return linear(stream, x, weight.weight(), bias, std::move(y));
    cpu::linear_packed(stream, x, weight.weight(), weight.packed(), bias, std::move(y));
}

}  // namespace tandem::ops
