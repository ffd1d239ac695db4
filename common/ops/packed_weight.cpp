#include "common/ops/packed_weight.h"

#include "common/ops/check.h"
#include "common/ops/cpu/packed_products.h"

namespace tandem::ops {

std::size_t PackedWeight::packed_bytes(const Tensor& weight) {
    detail::check_floating("pack", "weight", weight);
    detail::check_ndim("pack", "weight", weight, 2);
    return weight.numel() == 0 || weight.device().type != DeviceType::cpu ? 0 : cpu::packed_bytes(weight);
}

void PackedWeight::pack(const Tensor& weight, std::string_view tag) {
    const std::size_t bytes = packed_bytes(weight);
    if (own_.bytes() != bytes) own_ = bytes == 0 ? Buffer() : Buffer(bytes, tag);
    pack_into(weight, own_.span());
}

void PackedWeight::pack_into(const Tensor& weight, Span memory) {
    const std::size_t bytes = packed_bytes(weight);
    require(memory.bytes >= bytes, "pack: {} bytes for a copy of {}", memory.bytes, bytes);
    weight_ = weight;
    packed_ = {memory.data, bytes};
    if (bytes > 0) cpu::pack(weight, packed_.data);
}

void PackedWeight::point(const Tensor& weight) {
    weight_ = weight;
    packed_ = {};
    own_ = Buffer();
}

}  // namespace tandem::ops
