#include "sync/plan/plan.h"

#include <algorithm>

#include "common/error.h"
#include "sync/plan/assign.h"

namespace tandem::sync {
namespace {

constexpr std::size_t kAlign = 64;  // where a piece starts in its bucket: whole cache lines

std::size_t align_up(std::size_t bytes) {
    return (bytes + kAlign - 1) / kAlign * kAlign;
}
std::size_t align_down(std::size_t bytes) {
    return bytes / kAlign * kAlign;
}

void check_cast(const PlanTensor& tensor) {
    const auto floating = [](DType dtype) { return dtype == DType::float32 || dtype == DType::bfloat16; };
    const DType from = tensor.source_dtype;
    const DType to = tensor.info.dtype;
    require(from == to || (floating(from) && floating(to)), "tensor '{}': no cast from {} to {}",
            tensor.info.name, dtype_name(from), dtype_name(to));
}

struct Lane {
    std::size_t offset = 0;  // in every bucket
    std::size_t bytes = 0;
};

// Lanes in proportion to the ranks' bytes, each at least one cache line where the rank has anything to copy.
std::vector<Lane> make_lanes(const std::vector<std::size_t>& bytes_of_rank, std::size_t bucket_bytes) {
    std::size_t total = 0;
    std::size_t active = 0;
    for (const std::size_t bytes : bytes_of_rank) {
        total += bytes;
        active += bytes > 0 ? 1 : 0;
    }
    require(align_down(bucket_bytes) >= active * kAlign, "a bucket of {} bytes is too small for {} ranks",
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

// Cuts one rank's rows into pieces and lays them into its lane, bucket after bucket.
class LanePacker {
  public:
    LanePacker(Plan& plan, int rank, Lane lane, std::size_t max_piece_bytes)
        : plan_(plan), rank_(rank), lane_(lane), largest_(std::min(max_piece_bytes, lane.bytes)) {}

    void add(const Assignment& rows) {
        const PlanTensor& tensor = plan_.tensors[static_cast<std::size_t>(rows.tensor)];
        const std::size_t element = dtype_size(tensor.info.dtype);
        const std::size_t source_element = dtype_size(tensor.source_dtype);
        const auto row_size = static_cast<std::size_t>(row_elements(tensor.info.shape));  // elements
        const std::size_t row_bytes = row_size * element;
        const auto first = static_cast<std::size_t>(rows.start) * row_size;
        const auto local = static_cast<std::size_t>(rows.local) * row_size;
        const std::size_t count = static_cast<std::size_t>(rows.stop - rows.start) * row_size;
        // The unit that is not cut: a row where one fits, else a cache line's worth of elements.
        const std::size_t unit = row_bytes <= largest_ ? row_size : kAlign / element;
        for (std::size_t done = 0; done < count;) {
            std::size_t room = std::min(lane_.bytes - used_, largest_) / element;
            std::size_t take = count - done;
            if (take > room) take = room / unit * unit;
            if (take == 0) {
                ++bucket_;
                used_ = 0;
                continue;
            }
            if (bucket_ >= plan_.buckets.size()) plan_.buckets.resize(bucket_ + 1);
            plan_.buckets[bucket_].pieces.push_back({rows.tensor, rank_, (local + done) * source_element,
                                                     (first + done) * element, lane_.offset + used_,
                                                     take * element});
            done += take;
            used_ = std::min(lane_.bytes, align_up(used_ + take * element));
        }
    }

  private:
    Plan& plan_;
    int rank_;
    Lane lane_;
    std::size_t largest_;
    std::size_t bucket_ = 0;
    std::size_t used_ = 0;  // of the lane, in this bucket
};

// Closes the gaps that lanes left which no bucket fills: a small model does not need a whole bucket's memory.
void compact(Plan& plan, const std::vector<Lane>& lanes) {
    std::vector<std::size_t> used(lanes.size(), 0);
    for (const PlanBucket& bucket : plan.buckets) {
        for (const Piece& piece : bucket.pieces) {
            const auto rank = static_cast<std::size_t>(piece.rank);
            used[rank] =
                std::max(used[rank], align_up(piece.bucket_offset + piece.bytes - lanes[rank].offset));
        }
    }
    std::vector<std::size_t> offset(lanes.size(), 0);
    for (std::size_t rank = 1; rank < lanes.size(); ++rank) offset[rank] = offset[rank - 1] + used[rank - 1];
    for (PlanBucket& bucket : plan.buckets) {
        for (Piece& piece : bucket.pieces) {
            const auto rank = static_cast<std::size_t>(piece.rank);
            piece.bucket_offset = piece.bucket_offset - lanes[rank].offset + offset[rank];
        }
    }
}

}  // namespace

Plan make_plan(std::vector<PlanTensor> tensors, const PlanOptions& options) {
    require(options.world_size > 0, "a plan for {} ranks", options.world_size);
    require(options.max_piece_bytes >= kAlign, "pieces of at most {} bytes are smaller than a cache line",
            options.max_piece_bytes);
    for (const PlanTensor& tensor : tensors) check_cast(tensor);
    const auto assignments = assign_rows(tensors, options.world_size);

    Plan plan;
    plan.tensors = std::move(tensors);
    std::vector<std::size_t> bytes_of_rank;
    for (const auto& rows_of_rank : assignments) {
        std::size_t bytes = 0;
        for (const Assignment& rows : rows_of_rank) {
            const engine::TensorInfo& info = plan.tensors[static_cast<std::size_t>(rows.tensor)].info;
            bytes += static_cast<std::size_t>((rows.stop - rows.start) * row_elements(info.shape)) *
                     dtype_size(info.dtype);
        }
        bytes_of_rank.push_back(bytes);
        plan.bytes += bytes;
    }
    const std::vector<Lane> lanes = make_lanes(bytes_of_rank, options.bucket_bytes);
    for (std::size_t rank = 0; rank < assignments.size(); ++rank) {
        LanePacker packer(plan, static_cast<int>(rank), lanes[rank], options.max_piece_bytes);
        for (const Assignment& rows : assignments[rank]) packer.add(rows);
    }

    compact(plan, lanes);
    // Packing went rank by rank, so every bucket's pieces already lie in rank order.
    for (PlanBucket& bucket : plan.buckets) {
        std::size_t at = 0;
        for (int rank = 0; rank < options.world_size; ++rank) {
            bucket.first_piece.push_back(at);
            while (at < bucket.pieces.size() && bucket.pieces[at].rank == rank) ++at;
            plan.max_pieces_per_rank = std::max(plan.max_pieces_per_rank, at - bucket.first_piece.back());
        }
        bucket.first_piece.push_back(at);
        for (const Piece& piece : bucket.pieces) {
            plan.bucket_bytes = std::max(plan.bucket_bytes, piece.bucket_offset + piece.bytes);
        }
    }
    return plan;
}

}  // namespace tandem::sync
