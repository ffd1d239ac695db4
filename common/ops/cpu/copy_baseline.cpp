// Copy kernels for any x86-64. Compiled with its own -march; see attention/kernels.inl for the rules.
#include <immintrin.h>

#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_SSE2
#include <xxhash.h>

#include "common/ops/cpu/copy_kernels.h"

namespace tandem::ops::detail {
namespace {

using Line = __m128i;
#define TANDEM_LINE_REGISTER "x"

inline __attribute__((always_inline)) Line load_line(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const Line*>(from));
}
inline __attribute__((always_inline)) void stream_store(Line* to, Line value) {
    _mm_stream_si128(to, value);
}
inline __attribute__((always_inline)) void store_fence() {
    _mm_sfence();
}

#include "common/ops/cpu/delta_unequal.inl"

#include "common/ops/cpu/copy_kernels.inl"

}  // namespace

const CopyKernelSet kCopyBaseline = kKernels;

}  // namespace tandem::ops::detail
