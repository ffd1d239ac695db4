// What a launch of kernels that use hopper.cuh wants of the host.
#pragma once

#include <cstdint>

#include "common/device/stream.h"
#include "common/ops/cuda/hopper.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// Whether the stream's device is of compute capability 9.0 and this binary has code for it, not only what the
// driver makes of another GPU's.
bool on_hopper(Stream& stream);

// Rows of bfloat16 [rows, heads, head_dim] in boxes of some rows and columns of a head, swizzled as the tile in
// shared memory is (tile_mma.cuh): box_columns is 64 or 32. Rows and columns beyond are zeros. `data` lies at a
// multiple of 16 bytes, head_dim is a multiple of 8, and there are rows.
TensorMap tensor_map(const void* data, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                     int box_rows, int box_columns);

template <typename Tile>
TensorMap tensor_map(const void* data, std::int64_t rows, std::int64_t heads, std::int64_t head_dim) {
    return tensor_map(data, rows, heads, head_dim, Tile::kSubTileBytes / Tile::kRowBytes, Tile::kColumns);
}

}  // namespace tandem::ops::TANDEM_KERNELS
