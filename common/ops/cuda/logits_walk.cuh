// A row of logits, taken once by a block: sixteen a thread and turn, in accesses that lie side by side in the
// block and are all on their way before the first is used.
#pragma once

#include <cstdint>

#include "common/ops/cuda/elements.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// take(x, ids) for sixteen logits, then take of one where whole turns end: x[i] is of token ids(i), and a
// thread's tokens come in their order.
template <int kThreads, bool kBfloat16, typename Take>
__device__ __forceinline__ void walk_logits(const Elements& logits, std::int64_t base, int vocab,
                                            const Take& take) {
    constexpr int kAccess = kPerWords<kBfloat16>;  // elements
    constexpr int kAccesses = 16 / kAccess;
    constexpr int kTurn = kThreads * 16;
    const int thread = static_cast<int>(threadIdx.x);
    int at = 0;
    if (logits.vector) {
        const std::byte* from = logits.data + (base + thread * kAccess) * (16 / kAccess);
        for (; at + kTurn <= vocab; at += kTurn, from += kTurn * (16 / kAccess)) {
            Words words[kAccesses];
#pragma unroll
            for (int n = 0; n < kAccesses; ++n) words[n] = load16(from + n * kThreads * 16);
            float x[16];
#pragma unroll
            for (int n = 0; n < kAccesses; ++n) {
                float v[kAccess];
                unpack<kBfloat16>(words[n], v);
#pragma unroll
                for (int i = 0; i < kAccess; ++i) x[n * kAccess + i] = v[i];
            }
            take(x, [&](int i) { return at + (i / kAccess * kThreads + thread) * kAccess + i % kAccess; });
        }
    }
    for (at += thread; at < vocab; at += kThreads) {
        const float x[1] = {load1(logits, base + at)};
        take(x, [&](int) { return at; });
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
