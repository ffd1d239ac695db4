// Which rank copies which bytes of which tensor into which bucket. Pure: no I/O, no device; every rank
// computes the same plan from the same input.
//
// Each rank owns a lane of every bucket, as wide as its share of all bytes, and fills it in tensor order: so
// every bucket keeps every rank equally busy whatever the tensors' sizes are, and a bucket never exceeds
// bucket_bytes, also where one tensor is larger (it is cut along its rows; inside a row when one row is
// larger than a lane). Rows that several ranks hold (replicas over cp or dp_replicate) are divided among
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/tensor/dtype.h"
#include "engine_adapter/engine.h"

namespace tandem::sync {

// Rows [start, stop) of dim 0 that a rank holds, from local row `local` on. A tensor without dims has one
// row.
struct Holding {
    int rank = 0;
    std::int64_t start = 0;
    std::int64_t stop = 0;
    std::int64_t local = 0;
};

struct PlanTensor {
    engine::TensorInfo info;              // as the engine holds it
    DType source_dtype = DType::float32;  // as the trainer holds it; differs where the copy casts
    std::vector<Holding> holdings;        // of all ranks
};

// A run of bytes that one rank copies: contiguous in its local tensor, in the engine's tensor and in the
// bucket.
struct Piece {
    int tensor = 0;  // index in Plan::tensors
    int rank = 0;
    std::size_t source_offset = 0;  // bytes, in the rank's local tensor, source dtype
    std::size_t tensor_offset = 0;  // bytes, in the whole tensor, engine dtype
    std::size_t bucket_offset = 0;  // bytes, in the slot, engine dtype; a multiple of 64
    std::size_t bytes = 0;          // engine dtype
};

struct PlanBucket {
    std::vector<Piece> pieces;             // by rank, then in tensor order
    std::vector<std::size_t> first_piece;  // [rank], and one past the end
};

struct PlanOptions {
    std::size_t bucket_bytes = 64u << 20;    // no bucket is larger
    std::size_t max_piece_bytes = 1u << 20;  // pieces are what a checksum covers and what threads share
    int world_size = 1;
};

struct Plan {
    std::vector<PlanTensor> tensors;
    std::vector<PlanBucket> buckets;
    std::size_t bytes = 0;                // of all tensors, engine dtype
    std::size_t bucket_bytes = 0;         // the largest bucket_offset + bytes
    std::size_t max_pieces_per_rank = 0;  // in one bucket
};

// Throws InvalidArgument naming the tensor: rows that no rank holds, a cast that the copy does not know, a
// bucket that is too small to give each rank 64 bytes.
Plan make_plan(std::vector<PlanTensor> tensors, const PlanOptions& options);

}  // namespace tandem::sync
