// One tile of queries of one head, and its running softmax: the state with which attention_forward and decode
// walk over key tiles.
#pragma once

#include <cstdint>

#include "common/ops/cpu/attention/pack.h"

namespace tandem::ops::detail {

struct QueryTile {
    float* q;       // [kQueryTile, width]
    float* acc;     // [kQueryTile, width]
    float* scores;  // [kQueryTile, kKeyTile]
    float max[kQueryTile];
    float sum[kQueryTile];
};

// In this thread's memory: valid until the thread asks for the next one.
QueryTile make_tile(std::int64_t width);
void start_tile(QueryTile& tile, std::int64_t rows, std::int64_t width);
// Writes row `row` of the tile to element `offset` of out: acc / sum. Returns the log-sum-exp.
float finish_tile_row(const QueryTile& tile, std::int64_t row, std::int64_t width, const Tensor& out,
                      std::int64_t offset, std::int64_t head_dim);
// Merges the row, weighted by log-sum-exp, into a result over other keys, out [head_dim] and lse; a row that saw
// no key changes nothing.
void merge_tile_row(const QueryTile& tile, std::int64_t row, std::int64_t width, float* out,
                    std::int64_t head_dim, float& lse);

}  // namespace tandem::ops::detail
