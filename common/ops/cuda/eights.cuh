// Loops over flat tensors that keep the memory busy: eight elements a thread and turn, of dtypes that the
// compiler knows. No branch stands between the loads of a turn, so all of them are on their way before the
// first is used, which loads that ask for the dtype (elements.cuh) do not reach.
#pragma once

#include "common/ops/cuda/elements.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// Elements [at, at + 8) of tensors in bfloat16: one access of 16 bytes.
struct Neighbours {
    std::int64_t at;

    __device__ std::int64_t element(int i) const { return at + i; }
    __device__ bool has(int) const { return true; }
    template <bool = true>
    __device__ __forceinline__ void load(const Elements& from, float (&v)[8]) const {
        unpack<true>(load16(from.data + 2 * at), v);
    }
    template <bool = true>
    __device__ __forceinline__ void store(const Elements& to, const float (&v)[8]) const {
        store16(to.data + 2 * at, pack<true>(v));
    }
};

// Elements [at, at + 4) and [at + 128, at + 132): a warp has 256, and each of its accesses lies in one piece,
// whether an element has four bytes or two.
struct Rounds {
    static constexpr std::int64_t kApart = 128;
    std::int64_t at;

    __device__ std::int64_t element(int i) const { return at + (i < 4 ? i : kApart + i - 4); }
    __device__ bool has(int) const { return true; }
    template <bool kBfloat16 = false>
    __device__ __forceinline__ void load(const Elements& from, float (&v)[8]) const {
        if constexpr (kBfloat16) {
            const Pair pairs[2] = {load_pair(from.data + 2 * at), load_pair(from.data + 2 * (at + kApart))};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                v[2 * i] = shared::float_of(pairs[i / 2].w[i % 2] << 16);
                v[2 * i + 1] = shared::float_of(pairs[i / 2].w[i % 2] & 0xffff0000u);
            }
        } else {
            const Words words[2] = {load16(from.data + 4 * at), load16(from.data + 4 * (at + kApart))};
#pragma unroll
            for (int i = 0; i < 8; ++i) v[i] = shared::float_of(words[i / 4].w[i % 4]);
        }
    }
    template <bool kBfloat16 = false>
    __device__ __forceinline__ void store(const Elements& to, const float (&v)[8]) const {
        if constexpr (kBfloat16) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const Pair pair{
                    {bfloat16_pair(v[4 * n], v[4 * n + 1]), bfloat16_pair(v[4 * n + 2], v[4 * n + 3])}};
                store_pair(to.data + 2 * (at + n * kApart), pair);
            }
        } else {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                Words words;
#pragma unroll
                for (int i = 0; i < 4; ++i) words.w[i] = shared::bits_of(v[4 * n + i]);
                store16(to.data + 4 * (at + n * kApart), words);
            }
        }
    }
};

// Elements [at, at + 8) as far as there are any, however the tensors lie.
struct AsTheyAre {
    std::int64_t at, count;

    __device__ std::int64_t element(int i) const { return at + i; }
    __device__ bool has(int i) const { return i < count; }
    template <bool = true>
    __device__ __forceinline__ void load(const Elements& from, float (&v)[8]) const {
        load8(from, at, count, v);
    }
    template <bool = true>
    __device__ __forceinline__ void store(const Elements& to, const float (&v)[8]) const {
        store8(to, at, count, v);
    }
};

enum class Reach : std::int32_t { as_they_are, neighbours, rounds };

// How a kernel reaches its flat tensors; `mixed`: it knows their dtypes, which need not be equal.
template <typename... E>
Reach reach(bool mixed, const E&... tensors) {
    if (!(tensors.vector && ...)) return Reach::as_they_are;
    if ((tensors.is_bfloat16 && ...)) return Reach::neighbours;
    return mixed || !(tensors.is_bfloat16 || ...) ? Reach::rounds : Reach::as_they_are;
}

// Calls turn(Neighbours, Rounds or AsTheyAre) until [0, count) has passed; blocks of whole warps.
template <typename Turn>
__device__ __forceinline__ void for_eights(Reach reach, std::int64_t count, const Turn& turn) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * kVector;
    const std::int64_t lane = threadIdx.x % 32;
    std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVector;
    if (reach == Reach::neighbours) {
        for (; at + kVector <= count; at += step) turn(Neighbours{at});
    } else if (reach == Reach::rounds) {
        for (; at + (32 - lane) * kVector <= count; at += step) turn(Rounds{at - 4 * lane});
    }
    for (; at < count; at += step) turn(AsTheyAre{at, count - at});
}

}  // namespace tandem::ops::TANDEM_KERNELS
