// A reshard plan cut into pieces and put into buckets: where each trainer rank writes, and the transfers of
// each engine rank. Pure; every rank computes the same.
//
// Staged: each rank owns a lane of every bucket, as wide as its share of all bytes, and fills it in the order
// of the engines' tensors: so every bucket keeps every rank equally busy whatever the tensors' sizes are, and
// no bucket exceeds bucket_bytes, also where one tensor is larger (it is cut along its rows; inside a row
// when one row is larger than a lane).
// Grouped: no staging; buckets only divide the pieces into steps of about bucket_bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine_adapter/engine.h"
#include "sync/plan/reshard.h"

namespace tandem::sync {

// A move, or a part of one: what one checksum covers and what an engine's threads share a bucket by.
struct Piece {
    Move move;
    std::size_t bytes = 0;          // in the engine's dtype
    std::size_t bucket_offset = 0;  // staged: where it lies in the slot, packed; a multiple of 64
    std::uint32_t transfer = 0;     // its number in its engine's TransferPlan
};

struct BucketOptions {
    std::size_t bucket_bytes = 64u << 20;
    std::size_t max_piece_bytes = 1u << 20;
};

struct BucketPlan {
    std::vector<Piece> pieces;                             // by bucket, then source rank
    std::vector<std::size_t> first;                        // [bucket × ranks + rank], and one past the end
    std::vector<std::vector<std::uint64_t>> engine_first;  // [engine]: its TransferPlan::first
    std::size_t ranks = 1;
    std::size_t bytes = 0;         // of all engines
    std::size_t bucket_bytes = 0;  // staged: the largest bucket_offset + bytes
    std::size_t max_pieces = 0;    // of one rank in one bucket

    std::size_t buckets() const { return (first.size() - 1) / ranks; }
    std::size_t begin(std::size_t bucket, std::size_t rank) const { return first[bucket * ranks + rank]; }
    std::size_t end(std::size_t bucket, std::size_t rank) const { return first[bucket * ranks + rank + 1]; }
};

// Throws InvalidArgument: a bucket too small to give each rank 64 bytes.
BucketPlan make_staged(const ReshardPlan& plan, const BucketOptions& options);
BucketPlan make_grouped(const ReshardPlan& plan, const BucketOptions& options);

// The transfers of an engine rank. Each piece lies at the start of region 0, packed and in the engine's dtype, unless
// `place` says otherwise: it is given the piece's index and its transfer, and sets region, from_dtype, from, from_stride.
using PlacePiece = std::function<void(std::size_t index, const Piece& piece, engine::Transfer& transfer)>;
engine::TransferPlan transfer_plan(const ReshardPlan& plan, const BucketPlan& buckets, int engine,
                                   const PlacePiece& place = {});

// Element sizes of a move on both ends.
DType source_dtype(const ReshardPlan& plan, const Move& move);
const engine::TensorInfo& target_of(const ReshardPlan& plan, const Move& move);

}  // namespace tandem::sync
