#include "common/ops/packed_weight.h"

#include "common/ops/check.h"
#include "common/ops/cpu/packed_products.h"

namespace tandem::ops {

void PackedWeight::pack(const Tensor& weight, std::string_view tag) {
    detail::check_floating("pack", "weight", weight);
    detail::check_ndim("pack", "weight", weight, 2);
    const bool as_before =
        weight_.defined() && weight_.shape() == weight.shape() && weight_.dtype() == weight.dtype();
    weight_ = weight;
    if (!as_before) packed_ = Buffer();
    if (weight.numel() == 0 || weight.device().type != DeviceType::cpu) return;
    const std::size_t bytes = cpu::packed_bytes(weight);
    if (bytes == 0) return;
    if (packed_.bytes() == 0) packed_ = Buffer(bytes, tag);
    cpu::pack(weight, packed_.data());
}

void PackedWeight::point(const Tensor& weight) {
    weight_ = weight;
    packed_ = Buffer();
}

}  // namespace tandem::ops
