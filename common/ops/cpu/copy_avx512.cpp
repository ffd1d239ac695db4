// Copy kernels for AVX-512. Compiled with its own -march; see attention_kernels.inl for the rules.
#include <immintrin.h>

#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_AVX512
#include <xxhash.h>

#include "common/ops/cpu/copy_kernels.h"

namespace tandem::ops::detail {
namespace {

using Line = __m512i;

inline __attribute__((always_inline)) void stream_store(Line* to, Line value) {
    _mm512_stream_si512(to, value);
}
inline __attribute__((always_inline)) void store_fence() {
    _mm_sfence();
}

#include "common/ops/cpu/copy_kernels.inl"

}  // namespace

const CopyKernels kCopyAvx512{hash_begin,
                              hash_update,
                              hash_end,
                              hash_lines<Write::none>,
                              hash_lines<Write::store>,
                              hash_lines<Write::stream>,
                              stream_copy,
                              narrow_block,
                              widen_block,
                              store_fence};

}  // namespace tandem::ops::detail
