#include "common/comm/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "common/error.h"
#include "common/tensor/dtype.h"

// Function clones are chosen through an ifunc, which runs before a sanitizer is up.
#if defined(TANDEM_SANITIZE_address) || defined(TANDEM_SANITIZE_thread) || !defined(__x86_64__)
#define TANDEM_CLONES
#else
#define TANDEM_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#endif

namespace tandem::comm {
namespace {

constexpr std::size_t kBlock = 2048;  // elements: the accumulators stay in the first-level cache

struct Sum {
    template <typename T>
    static T apply(T a, T b) {
        return a + b;
    }
};
struct Max {
    template <typename T>
    static T apply(T a, T b) {
        return a < b ? b : a;
    }
};
struct Min {
    template <typename T>
    static T apply(T a, T b) {
        return b < a ? b : a;
    }
};

template <typename Op, typename Acc, typename T>
[[gnu::always_inline]] inline void fold(Acc* acc, const T* from, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) acc[i] = Op::template apply<Acc>(acc[i], static_cast<Acc>(from[i]));
}

TANDEM_CLONES void fold_sum(float* acc, const float* from, std::size_t n) {
    fold<Sum>(acc, from, n);
}
TANDEM_CLONES void fold_sum(float* acc, const bfloat16* from, std::size_t n) {
    fold<Sum>(acc, from, n);
}
TANDEM_CLONES void fold_sum(std::int64_t* acc, const std::int64_t* from, std::size_t n) {
    fold<Sum>(acc, from, n);
}
TANDEM_CLONES void fold_max(float* acc, const float* from, std::size_t n) {
    fold<Max>(acc, from, n);
}
TANDEM_CLONES void fold_max(float* acc, const bfloat16* from, std::size_t n) {
    fold<Max>(acc, from, n);
}
TANDEM_CLONES void fold_max(std::int64_t* acc, const std::int64_t* from, std::size_t n) {
    fold<Max>(acc, from, n);
}
TANDEM_CLONES void fold_min(float* acc, const float* from, std::size_t n) {
    fold<Min>(acc, from, n);
}
TANDEM_CLONES void fold_min(float* acc, const bfloat16* from, std::size_t n) {
    fold<Min>(acc, from, n);
}
TANDEM_CLONES void fold_min(std::int64_t* acc, const std::int64_t* from, std::size_t n) {
    fold<Min>(acc, from, n);
}

TANDEM_CLONES void widen(float* acc, const bfloat16* from, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) acc[i] = static_cast<float>(from[i]);
}
TANDEM_CLONES void round_to(bfloat16* out, const float* acc, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out[i] = bfloat16(acc[i]);
}
TANDEM_CLONES void divide(float* acc, float by, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) acc[i] /= by;
}

// --- the sum of two float32 parts, in one pass

typedef float Floats __attribute__((vector_size(64)));
constexpr std::size_t kFloats = sizeof(Floats) / sizeof(float);

TANDEM_CLONES void sum_two(float* out, const float* a, const float* b, std::size_t n) {
    std::size_t i = 0;
    for (; i + kFloats <= n; i += kFloats) {
        Floats sum, more;
        __builtin_memcpy(&sum, a + i, sizeof(sum));
        __builtin_memcpy(&more, b + i, sizeof(more));
        sum += more;
        __builtin_memcpy(out + i, &sum, sizeof(sum));
    }
    for (; i < n; ++i) out[i] = a[i] + b[i];
}

TANDEM_CLONES void add_sum_of_two(float* out, const float* a, const float* b, std::size_t n) {
    std::size_t i = 0;
    for (; i + kFloats <= n; i += kFloats) {
        Floats sum, more, before;
        __builtin_memcpy(&sum, a + i, sizeof(sum));
        __builtin_memcpy(&more, b + i, sizeof(more));
        __builtin_memcpy(&before, out + i, sizeof(before));
        before += sum + more;
        __builtin_memcpy(out + i, &before, sizeof(before));
    }
    for (; i < n; ++i) out[i] += a[i] + b[i];
}

// What is written goes to memory past the caches: lines of `out` are not read before they are overwritten.
void sum_two_past_caches(float* out, const float* a, const float* b, std::size_t n) {
#if defined(__SSE__)
    constexpr std::size_t kLine = 16, kStored = 4;
    std::size_t i = 0;
    for (; i < n && reinterpret_cast<std::uintptr_t>(out + i) % 64 != 0; ++i) out[i] = a[i] + b[i];
    for (; i + kLine <= n; i += kLine) {
        for (std::size_t j = i; j < i + kLine; j += kStored)
            _mm_stream_ps(out + j, _mm_add_ps(_mm_loadu_ps(a + j), _mm_loadu_ps(b + j)));
    }
    for (; i < n; ++i) out[i] = a[i] + b[i];
    _mm_sfence();  // before whoever is told that it is there
#else
    sum_two(out, a, b, n);
#endif
}

void reduce_two(const std::byte* first, const std::byte* second, std::byte* to, std::size_t count,
                bool accumulate, bool past_caches) {
    const auto* a = reinterpret_cast<const float*>(first);
    const auto* b = reinterpret_cast<const float*>(second);
    auto* out = reinterpret_cast<float*>(to);
    if (accumulate) return add_sum_of_two(out, a, b, count);
    past_caches ? sum_two_past_caches(out, a, b, count) : sum_two(out, a, b, count);
}

// --- any number of parts: by blocks, in accumulators

template <typename T>
void load(T* acc, const T* from, std::size_t n) {
    std::memcpy(acc, from, n * sizeof(T));
}
void load(float* acc, const bfloat16* from, std::size_t n) {
    widen(acc, from, n);
}

template <typename T>
void store(T* out, const T* acc, std::size_t n) {
    std::memcpy(out, acc, n * sizeof(T));
}
void store(bfloat16* out, const float* acc, std::size_t n) {
    round_to(out, acc, n);
}

template <typename Acc, typename T>
void fold_by(ReduceOp op, Acc* acc, const T* from, std::size_t n) {
    switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg:
            return fold_sum(acc, from, n);
        case ReduceOp::max:
            return fold_max(acc, from, n);
        case ReduceOp::min:
            return fold_min(acc, from, n);
    }
}

template <typename Acc, typename T>
void reduce_as(std::span<const std::byte* const> sources, std::byte* out_bytes, std::size_t count,
               ReduceOp op, bool accumulate) {
    alignas(64) Acc acc[kBlock];
    auto* out = reinterpret_cast<T*>(out_bytes);
    for (std::size_t at = 0; at < count; at += kBlock) {
        const std::size_t n = std::min(kBlock, count - at);
        load(acc, reinterpret_cast<const T*>(sources[0]) + at, n);
        for (std::size_t s = 1; s < sources.size(); ++s) {
            fold_by(op, acc, reinterpret_cast<const T*>(sources[s]) + at, n);
        }
        if constexpr (std::is_same_v<Acc, float>) {
            if (op == ReduceOp::avg) divide(acc, static_cast<float>(sources.size()), n);
        }
        if constexpr (std::is_same_v<T, float>) {
            if (accumulate) {
                fold_sum(out + at, acc, n);
                continue;
            }
        }
        store(out + at, acc, n);
    }
}

}  // namespace

void require_reducible(DType dtype, ReduceOp op) {
    const bool known = dtype == DType::float32 || dtype == DType::bfloat16 || dtype == DType::int64;
    require(known, "cannot reduce {}; float32, bfloat16 and int64 are possible", dtype_name(dtype));
    require(dtype != DType::int64 || op != ReduceOp::avg, "cannot average int64; use sum");
}

void reduce(std::span<const std::byte* const> sources, std::byte* out, std::size_t bytes, DType dtype,
            ReduceOp op, bool accumulate, bool past_caches) {
    if (bytes == 0) return;
    const std::size_t count = bytes / dtype_size(dtype);
    switch (dtype) {
        case DType::float32:
            if (op == ReduceOp::sum && sources.size() == 2)
                return reduce_two(sources[0], sources[1], out, count, accumulate, past_caches);
            return reduce_as<float, float>(sources, out, count, op, accumulate);
        case DType::bfloat16:
            return reduce_as<float, bfloat16>(sources, out, count, op, false);
        case DType::int64:
            return reduce_as<std::int64_t, std::int64_t>(sources, out, count, op, false);
        default:
            require_reducible(dtype, op);
    }
}

}  // namespace tandem::comm
