// What the two kernels of backward_wgmma.cuh share.
#pragma once

#include "common/ops/cuda/attention/backward_mma.cuh"
#include "common/ops/cuda/attention/tile_wgmma.cuh"
#include "common/ops/cuda/tensor_map.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// kDim columns, 64 rows a warpgroup; the tiles that pass by have kWalked rows.
template <int kDim_, int kGroups_, int kWalked_>
struct BackwardWgmmaShape {
    static constexpr int kDim = kDim_, kGroups = kGroups_, kWalked = kWalked_;
    static constexpr int kThreads = 128 * kGroups;  // of those who compute
    static constexpr int kBlockThreads = 128 + kThreads;
    static constexpr int kRows = 64 * kGroups;
    static constexpr int kProducerRegisters = kGroups == 2 ? 24 : 32;
    static constexpr int kRegisters = kGroups == 2 ? 240 : 160;
    using Own = MmaTile<kDim, kRows>;
    using Walked = MmaTile<kDim, kWalked>;
};

}  // namespace tandem::ops::TANDEM_KERNELS
