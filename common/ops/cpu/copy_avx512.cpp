// Copy kernels for AVX-512. Compiled with its own -march; see attention/kernels.inl for the rules.
#include <immintrin.h>

#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_AVX512
#include <xxhash.h>

#include "common/ops/cpu/copy_kernels.h"

namespace tandem::ops::detail {
namespace {

using Line = __m512i;
#define TANDEM_LINE_REGISTER "v"

inline __attribute__((always_inline)) Line load_line(const std::byte* from) {
    return _mm512_loadu_si512(reinterpret_cast<const Line*>(from));
}
inline __attribute__((always_inline)) void stream_store(Line* to, Line value) {
    _mm512_stream_si512(to, value);
}
inline __attribute__((always_inline)) void store_fence() {
    _mm_sfence();
}

#include "common/ops/cpu/delta_unequal.inl"

#include "common/ops/cpu/copy_kernels.inl"

}  // namespace

const CopyKernelSet kCopyAvx512 = kKernels;

}  // namespace tandem::ops::detail
