// What a launch for a Hopper (hopper.cuh) wants of the host. Not where kernels run on the host.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/device/stream.h"

namespace tandem::ops::cuda {

// Whether the stream's device is of compute capability 9.0 and this binary has code for it, not only what the
// driver makes of another GPU's.
bool on_hopper(Stream& stream);

// Rows of bfloat16 [rows, heads, head_dim] in boxes of some rows and columns of a head, swizzled as the tile in
// shared memory is (tile_mma.cuh): box_columns is 64 or 32. Rows and columns beyond are zeros.
CUtensorMap tensor_map(const void* data, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                       int box_rows, int box_columns);

template <typename Tile>
CUtensorMap tensor_map(const void* data, std::int64_t rows, std::int64_t heads, std::int64_t head_dim) {
    return tensor_map(data, rows, heads, head_dim, Tile::kSubTileBytes / Tile::kRowBytes, Tile::kColumns);
}

}  // namespace tandem::ops::cuda
