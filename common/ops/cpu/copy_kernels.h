// The inner loops of batched_copy, compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::ops::detail {

// Room for XXH3's streaming state; its layout is the kernels' own.
struct HashState {
    alignas(64) std::byte bytes[640];
};

// Rows of whole 64-byte lines, `bytes` each, from_stride and to_stride apart.
struct CopyLines {
    const std::byte* from;
    std::size_t from_stride;
    std::byte* to;
    std::size_t to_stride;
    std::int64_t rows;
    std::size_t bytes;
};

// Into which cache a line is prefetched. Which is fastest depends on the processor: a prefetch past the
// caches ties up the few buffers between core and L2 while it is under way.
enum class Prefetch : std::uint8_t {
    non_temporal,  // prefetchnta: to L1, past the other caches
    far,           // prefetcht2: to L2 or L3
    near,          // prefetcht0: to all caches
};

enum class RowsLie : std::uint8_t { end_to_end, apart };
// always_inline, here and below: no set of kernels may own the program's only copy.
inline __attribute__((always_inline)) RowsLie rows_lie(std::size_t row_bytes, std::size_t stride,
                                                       std::int64_t rows) {
    return rows <= 1 || stride == row_bytes ? RowsLie::end_to_end : RowsLie::apart;
}

// How far ahead lines are prefetched, as distances in memory: `bytes` within a row, `beyond` at its end, so
// that it is about `bytes` of the rows without the gaps between them. Hardware runs ahead by itself where rows
// lie end to end; across gaps it does not, and needs more time.
struct Ahead {
    static constexpr std::size_t kPacked = 4096, kAcrossGaps = 16384;
    __attribute__((always_inline)) Ahead(std::size_t row_bytes, std::size_t stride, std::int64_t rows)
        : bytes(rows_lie(row_bytes, stride, rows) == RowsLie::end_to_end ? kPacked : kAcrossGaps),
          within(row_bytes > bytes ? row_bytes - bytes : 0),
          beyond(rows == 1    ? bytes
                 : within > 0 ? stride - row_bytes + bytes
                              : (bytes + row_bytes - 1) / row_bytes * stride) {}
    std::size_t bytes;
    std::size_t within;  // bytes of a row that have the byte ahead in the same row
    std::size_t beyond;
};

struct CopyKernels {
    void (*hash_begin)(HashState&);
    void (*hash_update)(HashState&, const std::byte* data, std::size_t bytes);
    void (*hash_end)(const HashState&, std::uint64_t& low, std::uint64_t& high);
    // Hash in one pass with the copy, for a state that has seen whole lines only. `stream` writes past the
    // cache (then see stream_copy), `store` through it, where `to` may lie below an overlapping `from`.
    void (*hash_lines)(HashState&, const CopyLines&);
    void (*hash_store_lines)(HashState&, const CopyLines&);
    void (*hash_stream_lines)(HashState&, const CopyLines&);
    // Hash in one pass with a comparison to `count` lines of base (one at least), for elements of 2 or 4 bytes
    // and a state that has seen whole lines only: sets the bits of those that differ, returns how many. `renew`
    // writes all lines over those of base.
    using CompareLines = std::size_t (*)(HashState&, const std::byte* fresh, std::byte* base,
                                         std::size_t count, std::byte* bitmap);
    CompareLines compare2_lines, compare4_lines, renew2_lines, renew4_lines;
    // Prefetches for rows that other code reads: `bytes` from `from` on, which is byte in_row of its row.
    void (*prefetch_rows)(const std::byte* from, std::size_t in_row, std::size_t bytes, const Ahead& ahead);
    // Writes past the cache; needs a fence() before another thread may read. Ranges must not overlap.
    void (*stream_copy)(const std::byte* from, std::byte* to, std::size_t bytes);
    void (*narrow)(const std::byte* from, std::byte* to, std::int64_t count);  // float32 -> bfloat16
    void (*widen)(const std::byte* from, std::byte* to, std::int64_t count);   // bfloat16 -> float32
    void (*fence)();
};

// The same kernels with each way of prefetching; the bits are the same.
struct CopyKernelSet {
    CopyKernels non_temporal, far, near;
    const CopyKernels& with(Prefetch prefetch) const {
        return prefetch == Prefetch::non_temporal ? non_temporal : prefetch == Prefetch::far ? far : near;
    }
};

// For this machine: the widest instruction set, and the way of prefetching that copy_prefetch.h finds
// fastest for such rows. The first call for either may measure it.
const CopyKernels& copy_kernels(RowsLie rows = RowsLie::end_to_end);

extern const CopyKernelSet kCopyBaseline;
extern const CopyKernelSet kCopyAvx2;
extern const CopyKernelSet kCopyAvx512;

}  // namespace tandem::ops::detail
