#include "sync/plan/buckets.h"

#include <algorithm>

#include "common/align.h"
#include "common/error.h"

namespace tandem::sync {
namespace {

constexpr std::size_t kAlign = 64;  // where a piece starts in its bucket: whole cache lines

std::size_t align_down(std::size_t bytes) {
    return bytes / kAlign * kAlign;
}

struct Lane {
    std::size_t offset = 0;  // in every bucket
    std::size_t bytes = 0;
};

// Lanes in proportion to the ranks' bytes, each at least one cache line where the rank has anything to copy.
std::vector<Lane> make_lanes(const std::vector<std::uint64_t>& bytes_of_rank, std::size_t bucket_bytes) {
    std::size_t total = 0;
    std::size_t active = 0;
    for (const std::uint64_t bytes : bytes_of_rank) {
        total += bytes;
        active += bytes > 0 ? 1 : 0;
    }
    enforce(align_down(bucket_bytes) >= active * kAlign, "a bucket of {} bytes is too small for {} ranks",
            bucket_bytes, active);
    const std::size_t free_bytes = align_down(bucket_bytes) - active * kAlign;
    std::vector<Lane> lanes(bytes_of_rank.size());
    std::size_t offset = 0;
    for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
        lanes[rank].offset = offset;
        if (bytes_of_rank[rank] == 0) continue;
        const double share = static_cast<double>(bytes_of_rank[rank]) / static_cast<double>(total);
        lanes[rank].bytes =
            kAlign + align_down(static_cast<std::size_t>(share * static_cast<double>(free_bytes)));
        offset += lanes[rank].bytes;
    }
    return lanes;
}

// Takes parts off the front of a move, each at most as large as asked: whole rows where one fits, else whole
// rows of the tensor inside a run that joins several of them, else cache lines' worth of elements.
class Cutter {
  public:
    Cutter(const ReshardPlan& plan, const Move& move)
        : rest_(move), width_(dtype_size(target_of(plan, move).dtype)) {
        const Shape& shape = plan.source().tensors[static_cast<std::size_t>(move.source_tensor)].shape;
        if (!shape.empty() && shape.back() > 0 && move.row_elements % shape.back() == 0) line_ = shape.back();
    }
    bool done() const { return rest_.rows == 0; }

    // Nothing when not even the smallest part fits.
    bool take(std::size_t most_bytes, std::size_t largest_ever, Piece& piece) {
        const auto most = static_cast<std::int64_t>(most_bytes / width_);
        piece = {rest_, 0, 0, 0};
        Move& move = piece.move;
        if (column_ == 0 && rest_.row_elements <= static_cast<std::int64_t>(largest_ever / width_)) {
            move.rows = std::min(rest_.rows, most / rest_.row_elements);
            if (move.rows == 0) return false;
        } else {
            move.rows = 1;
            const std::int64_t left = rest_.row_elements - column_;
            const auto largest = static_cast<std::int64_t>(largest_ever / width_);
            const std::int64_t unit =
                line_ > 0 && line_ <= largest ? line_ : static_cast<std::int64_t>(kAlign / width_);
            move.row_elements = left <= most ? left : most / unit * unit;
            if (move.row_elements == 0) return false;
            move.source_offset += column_;
            move.target_offset += column_;
        }
        advance(move);
        if (move.rows == 1) move.source_stride = move.target_stride = move.row_elements;
        piece.bytes = static_cast<std::size_t>(move.rows * move.row_elements) * width_;
        return true;
    }

  private:
    void advance(const Move& taken) {
        if (taken.row_elements < rest_.row_elements) {
            column_ += taken.row_elements;
            if (column_ < rest_.row_elements) return;
            column_ = 0;
        }
        rest_.rows -= taken.rows;
        rest_.source_offset += taken.rows * rest_.source_stride;
        rest_.target_offset += taken.rows * rest_.target_stride;
    }

    Move rest_;
    std::size_t width_;
    std::int64_t line_ = 0;    // elements of a row of the tensor; 0: runs do not hold whole ones
    std::int64_t column_ = 0;  // of the first row of rest_, elements taken already
};

using Buckets = std::vector<std::vector<Piece>>;  // [bucket]

// Brings every bucket's pieces into one list and numbers the engines' transfers.
BucketPlan finish(const ReshardPlan& plan, const std::vector<Buckets>& of_rank) {
    BucketPlan result;
    result.ranks = of_rank.size();
    result.engine_first.assign(plan.engine().size(), {0});
    std::size_t buckets = 0;
    for (const Buckets& one : of_rank) buckets = std::max(buckets, one.size());
    std::vector<std::uint32_t> next(plan.engine().size(), 0);
    for (std::size_t b = 0; b < buckets; ++b) {
        for (const Buckets& one : of_rank) {
            result.first.push_back(result.pieces.size());
            if (b >= one.size()) continue;
            result.max_pieces = std::max(result.max_pieces, one[b].size());
            for (Piece piece : one[b]) {
                piece.transfer = next[static_cast<std::size_t>(piece.move.engine_rank)]++;
                result.bytes += piece.bytes;
                result.bucket_bytes = std::max(result.bucket_bytes, piece.bucket_offset + piece.bytes);
                result.pieces.push_back(piece);
            }
        }
        for (std::size_t e = 0; e < next.size(); ++e) result.engine_first[e].push_back(next[e]);
    }
    result.first.push_back(result.pieces.size());
    return result;
}

// Closes the gaps that lanes left which no bucket fills: a small model does not need a whole bucket's memory.
void compact(std::vector<Buckets>& of_rank, const std::vector<Lane>& lanes) {
    std::size_t offset = 0;
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
        std::size_t used = 0;
        for (auto& bucket : of_rank[rank]) {
            for (Piece& piece : bucket) {
                const std::size_t in_lane = piece.bucket_offset - lanes[rank].offset;
                used = std::max(used, round_up(in_lane + piece.bytes, kAlign));
                piece.bucket_offset = offset + in_lane;
            }
        }
        offset += used;
    }
}

}  // namespace

DType source_dtype(const ReshardPlan& plan, const Move& move) {
    return plan.source().tensors[static_cast<std::size_t>(move.source_tensor)].dtype;
}
const engine::TensorInfo& target_of(const ReshardPlan& plan, const Move& move) {
    return plan
        .engine()[static_cast<std::size_t>(move.engine_rank)][static_cast<std::size_t>(move.engine_tensor)];
}

engine::TransferPlan transfer_plan(const ReshardPlan& plan, const BucketPlan& buckets, int engine,
                                   const PlacePiece& place) {
    engine::TransferPlan result;
    result.first = buckets.engine_first[static_cast<std::size_t>(engine)];
    result.transfers.resize(result.first.back());
    result.ranks = plan.engine().size();
    for (std::size_t i = 0; i < buckets.pieces.size(); ++i) {
        const Piece& piece = buckets.pieces[i];
        if (piece.move.engine_rank != engine) continue;
        const DType dtype = target_of(plan, piece.move).dtype;
        const auto width = dtype_size(dtype);
        engine::Transfer& transfer = result.transfers[piece.transfer];
        transfer.tensor = static_cast<std::uint32_t>(piece.move.engine_tensor);
        transfer.source_rank = static_cast<std::uint32_t>(piece.move.source_rank);
        transfer.from_dtype = dtype;
        transfer.rows = static_cast<std::uint64_t>(piece.move.rows);
        transfer.row_elements = static_cast<std::uint64_t>(piece.move.row_elements);
        transfer.from_stride = transfer.row_elements * width;
        transfer.to = static_cast<std::uint64_t>(piece.move.target_offset) * width;
        transfer.to_stride = static_cast<std::uint64_t>(piece.move.target_stride) * width;
        if (place) place(i, piece, transfer);
    }
    return result;
}

BucketPlan make_staged(const ReshardPlan& plan, const BucketOptions& options) {
    enforce(options.max_piece_bytes >= kAlign, "pieces of at most {} bytes are smaller than a cache line",
            options.max_piece_bytes);
    const std::vector<Lane> lanes = make_lanes(plan.bytes_from(), options.bucket_bytes);
    std::vector<Buckets> of_rank(lanes.size());
    for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
        const Lane lane = lanes[rank];
        const std::size_t largest = std::min(options.max_piece_bytes, lane.bytes);
        std::size_t used = lane.bytes;  // of the last bucket's lane
        for (const Move& move : plan.moves_from(static_cast<int>(rank))) {
            Piece piece;
            for (Cutter cutter(plan, move); !cutter.done();) {
                if (!cutter.take(std::min(lane.bytes - used, largest), largest, piece)) {
                    of_rank[rank].emplace_back();
                    used = 0;
                    continue;
                }
                piece.bucket_offset = lane.offset + used;
                used = std::min(lane.bytes, round_up(used + piece.bytes, kAlign));
                of_rank[rank].back().push_back(piece);
            }
        }
    }
    compact(of_rank, lanes);
    return finish(plan, of_rank);
}

BucketPlan make_grouped(const ReshardPlan& plan, const BucketOptions& options) {
    const auto& shares = plan.bytes_from();
    std::vector<Buckets> of_rank(shares.size());
    const std::size_t steps = std::max<std::size_t>(
        1, (plan.bytes() + options.bucket_bytes - 1) / std::max<std::size_t>(options.bucket_bytes, 1));
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
        const std::size_t share = shares[rank] / steps + 1;
        std::size_t used = share;
        for (const Move& move : plan.moves_from(static_cast<int>(rank))) {
            Piece piece;
            for (Cutter cutter(plan, move); !cutter.done();) {
                if (used >= share) {
                    of_rank[rank].emplace_back();
                    used = 0;
                }
                enforce(cutter.take(options.max_piece_bytes, options.max_piece_bytes, piece),
                        "pieces of at most {} bytes are too small", options.max_piece_bytes);
                used += piece.bytes;
                of_rank[rank].back().push_back(piece);
            }
        }
    }
    return finish(plan, of_rank);
}

}  // namespace tandem::sync
