// What tensor cores do, for kernels that run on the host: a warp's fragments, put together and multiplied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/support/kernels_on_host.h"  // which includes this at its end

namespace fibers {

// Of all lanes of this warp, in their order. Orders no memory, as on a GPU.
template <typename T>
struct FromAllLanes {
    T of[32];
};

template <typename T>
TANDEM_ON_HOST FromAllLanes<T> gather(const T& value) {
    FromAllLanes<T> result;
    for (std::size_t at = 0; at < sizeof(T); at += sizeof(std::uint64_t)) {
        const std::size_t bytes =
            sizeof(T) - at < sizeof(std::uint64_t) ? sizeof(T) - at : sizeof(std::uint64_t);
        std::uint64_t mine = 0;
        std::memcpy(&mine, reinterpret_cast<const std::byte*>(&value) + at, bytes);
        const std::uint64_t* const all = all_lanes(0xffffffffu, mine);
        for (unsigned lane = 0; lane < 32; ++lane)
            std::memcpy(reinterpret_cast<std::byte*>(&result.of[lane]) + at, all + lane, bytes);
    }
    return result;
}

TANDEM_ON_HOST float bfloat16_of(std::uint32_t pair, unsigned which) {
    const std::uint32_t bits = which == 0 ? pair << 16 : pair & 0xffff0000u;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// See common/ops/cuda/mma.cuh for what a lane has of each matrix.
TANDEM_ON_HOST void multiply(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    struct A {
        std::uint32_t w[4];
    };
    struct B {
        std::uint32_t w[2];
    };
    const auto all_a = gather(A{{a[0], a[1], a[2], a[3]}});
    const auto all_b = gather(B{{b[0], b[1]}});
    const unsigned lane = here().thread.x % 32;
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        for (unsigned k = 0; k < 16; ++k) {
            const unsigned pair = k % 8 / 2;
            const float x = bfloat16_of(all_a.of[row % 8 * 4 + pair].w[row / 8 + 2 * (k / 8)], k % 2);
            const float y = bfloat16_of(all_b.of[column * 4 + pair].w[k / 8], k % 2);
            c[i] += x * y;
        }
    }
}

TANDEM_ON_HOST std::uint32_t transpose(std::uint32_t pair) {
    const auto all = gather(pair);
    const unsigned lane = here().thread.x % 32;
    std::uint32_t result = 0;
    for (unsigned i = 0; i < 2; ++i) {
        const unsigned row = 2 * (lane % 4) + i, column = lane / 4;
        const std::uint32_t element = all.of[row * 4 + column / 2] >> (16 * (column % 2)) & 0xffffu;
        result |= element << (16 * i);
    }
    return result;
}

}  // namespace fibers
