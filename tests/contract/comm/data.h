// Test data that every rank can compute for every other: a hash of (seed, rank, index). And memory of both
// kinds.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/comm/communicator.h"
#include "common/device/memory.h"
#include "common/tensor/dtype.h"

namespace tandem::comm::contract {

// Where each access to memory is looked at, the largest sizes are no larger than they must be.
#if defined(TANDEM_SANITIZE_address) || defined(TANDEM_SANITIZE_thread)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline std::uint64_t mix(std::uint64_t seed, std::uint64_t rank, std::uint64_t index) {
    std::uint64_t x = seed * 0x9e3779b97f4a7c15 + rank * 0xbf58476d1ce4e5b9 + index * 0x94d049bb133111eb + 1;
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93;
    x ^= x >> 32;
    return x;
}

inline std::byte byte_at(std::uint64_t seed, int rank, std::size_t index) {
    return static_cast<std::byte>(mix(seed, static_cast<std::uint64_t>(rank), index));
}

inline void fill_bytes(Span to, std::uint64_t seed, int rank) {
    for (std::size_t i = 0; i < to.bytes; ++i) to.data[i] = byte_at(seed, rank, i);
}

// In [-8, 8), with fractions: sums depend on their order.
inline float float_at(std::uint64_t seed, int rank, std::size_t index) {
    return static_cast<float>(mix(seed, static_cast<std::uint64_t>(rank), index) >> 40) / 1048576.0F - 8.0F;
}

template <typename T>
T value_at(std::uint64_t seed, int rank, std::size_t index) {
    return T(float_at(seed, rank, index));
}
template <>
inline std::int64_t value_at<std::int64_t>(std::uint64_t seed, int rank, std::size_t index) {
    return static_cast<std::int64_t>(mix(seed, static_cast<std::uint64_t>(rank), index)) >> 8;
}

// The oracle of a reduction: rank order, fp32, rounded once.
template <typename T>
T reduced(std::uint64_t seed, int size, std::size_t index, ReduceOp op) {
    using Acc = std::conditional_t<std::is_same_v<T, std::int64_t>, std::int64_t, float>;
    Acc acc = static_cast<Acc>(value_at<T>(seed, 0, index));
    for (int r = 1; r < size; ++r) {
        const Acc next = static_cast<Acc>(value_at<T>(seed, r, index));
        if (op == ReduceOp::max) {
            acc = acc < next ? next : acc;
        } else if (op == ReduceOp::min) {
            acc = next < acc ? next : acc;
        } else {
            acc = acc + next;
        }
    }
    if (op == ReduceOp::avg) acc = acc / static_cast<Acc>(size);
    return T(acc);
}

enum class Where { heap, ordinary, mixed };  // mixed: heap on even ranks, ordinary on odd ones

inline MemoryPool& pool_of(Communicator& comm, Where where) {
    const bool heap = where == Where::heap || (where == Where::mixed && comm.rank() % 2 == 0);
    return heap ? comm.memory() : cpu_pool();
}

template <typename T>
T* as(const Buffer& buffer) {
    return reinterpret_cast<T*>(buffer.data());
}

}  // namespace tandem::comm::contract
