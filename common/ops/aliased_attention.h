// Attention on a GPU that computes on the CPU (common/device/cpu_kernels.h): by the CPU's functions, or by those that a
// test puts in their place, all or some, before main() (tests/emulated_gpu). Nothing else asks for them.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ops/attention.h"

namespace tandem::ops::detail {

struct AliasedAttention {
    using Decode = void(Stream&, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                        const std::vector<std::vector<std::int32_t>>& block_tables,
                        const std::vector<std::int32_t>& lengths, float scale, Tensor out);
    using DecodeByTensors = void(Stream&, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                                 const Tensor& pages, const Tensor& lengths, float scale, Tensor out);

    decltype(cpu::attention_forward)* forward = cpu::attention_forward;
    decltype(cpu::attention_delta)* delta = cpu::attention_delta;
    decltype(cpu::attention_backward)* backward = cpu::attention_backward;
    Decode* decode = cpu::paged_attention_decode;
    DecodeByTensors* decode_by_tensors = cpu::paged_attention_decode;
    decltype(cpu::paged_attention_prefill)* prefill = cpu::paged_attention_prefill;
};

inline constinit AliasedAttention aliased_attention;

}  // namespace tandem::ops::detail
