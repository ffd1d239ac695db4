// Keys and values that attention's kernels read where they lie in a cache.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::ops::detail {

inline constexpr std::int64_t kKeyTile = 64;
// Keys whose rows are equally far apart, and how many of such are a tile.
inline constexpr std::int64_t kKeyRows = 16, kKeyVectors = kKeyTile / kKeyRows;

// The keys of one kv head and their values where they lie in a cache: kKeyRows at a time, rows [head_dim] `stride`
// elements apart.
struct KeyRows {
    const std::byte* k[kKeyVectors] = {};  // first rows; all kKeyRows of each can be read
    const std::byte* v[kKeyVectors] = {};  // likewise; those past the tile's last key are not read
    std::int64_t stride = 0;
    std::int64_t element_bytes = 0;  // 4: float32; 2: bfloat16, as its bits
    // What the thread reads next, kKeyRows rows [head_dim] side by side at each address: to be asked for a little at a
    // time, as memory gives it.
    bool looks_ahead = false;  // else there is nothing:
    const std::byte* next_k[kKeyVectors] = {};
    const std::byte* next_v[kKeyVectors] = {};
};

// Asks for lines [first, first + count) of what is read next, in the place of these keys and of those that a tile of
// `vectors` lacks.
static inline __attribute__((always_inline)) void ask_ahead(const std::byte* const* next, std::int64_t vector,
                                                            std::int64_t vectors, std::int64_t first,
                                                            std::int64_t count) {
    constexpr std::int64_t kLine = 64;
    if (next == nullptr) return;
    for (; vector < kKeyVectors; vector += vectors) {
        for (std::int64_t n = first; n < first + count; ++n)
            __builtin_prefetch(next[vector] + n * kLine, 0, 2);
    }
}

}  // namespace tandem::ops::detail
