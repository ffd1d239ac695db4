// The byte-exact oracle of a plan: carries it out naively on arrays of bytes and compares with the whole
// tensors.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "sync/plan/assign.h"
#include "sync/plan/plan.h"

namespace tandem::sync {

using Bytes = std::vector<unsigned char>;

// Byte b of tensor t in source dtype: depends on both, so that a shifted or swapped copy shows.
inline Bytes whole_tensor(std::size_t t, const PlanTensor& tensor) {
    const std::size_t count =
        static_cast<std::size_t>(numel(tensor.info.shape)) * dtype_size(tensor.source_dtype);
    Bytes bytes(count);
    for (std::size_t b = 0; b < count; ++b)
        bytes[b] = static_cast<unsigned char>((b * 131 + (b >> 8) * 17 + t * 71 + 3) % 251);
    return bytes;
}

// What `rank` holds of a tensor: its holdings' rows, in order of `local`.
inline Bytes local_tensor(const Bytes& whole, const PlanTensor& tensor, int rank) {
    const std::size_t row =
        static_cast<std::size_t>(row_elements(tensor.info.shape)) * dtype_size(tensor.source_dtype);
    Bytes local;
    for (const Holding& h : tensor.holdings) {
        if (h.rank != rank) continue;
        EXPECT_EQ(local.size(), static_cast<std::size_t>(h.local) * row);
        local.insert(local.end(), whole.begin() + h.start * static_cast<std::ptrdiff_t>(row),
                     whole.begin() + h.stop * static_cast<std::ptrdiff_t>(row));
    }
    return local;
}

// Runs the plan (source and engine dtype equal) and checks: every byte of every tensor exactly once, nothing
// outside the bucket, pieces of a bucket disjoint and aligned, rows cut only where one does not fit.
inline void check_plan(const Plan& plan, const PlanOptions& options) {
    std::vector<Bytes> whole, assembled;
    std::vector<std::vector<int>> written;
    std::vector<std::vector<Bytes>> local;  // [tensor][rank]
    for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
        whole.push_back(whole_tensor(t, plan.tensors[t]));
        assembled.emplace_back(whole.back().size());
        written.emplace_back(whole.back().size(), 0);
        auto& of_tensor = local.emplace_back();
        for (int rank = 0; rank < options.world_size; ++rank) {
            of_tensor.push_back(local_tensor(whole.back(), plan.tensors[t], rank));
        }
    }
    std::size_t total = 0;
    for (const PlanBucket& bucket : plan.buckets) {
        Bytes slot(options.bucket_bytes, 0);
        std::vector<int> used(options.bucket_bytes, 0);
        ASSERT_EQ(bucket.first_piece.size(), static_cast<std::size_t>(options.world_size) + 1);
        for (const Piece& piece : bucket.pieces) {
            const auto t = static_cast<std::size_t>(piece.tensor);
            const auto rank = static_cast<std::size_t>(piece.rank);
            ASSERT_GT(piece.bytes, 0u);
            ASSERT_LE(piece.bytes, options.max_piece_bytes);
            ASSERT_EQ(piece.bucket_offset % 64, 0u);
            ASSERT_LE(piece.bucket_offset + piece.bytes, options.bucket_bytes);
            ASSERT_LE(piece.source_offset + piece.bytes, local[t][rank].size());
            for (std::size_t b = 0; b < piece.bytes; ++b) ASSERT_EQ(used[piece.bucket_offset + b]++, 0);
            std::memcpy(slot.data() + piece.bucket_offset, local[t][rank].data() + piece.source_offset,
                        piece.bytes);
        }
        for (const Piece& piece : bucket.pieces) {
            const auto t = static_cast<std::size_t>(piece.tensor);
            ASSERT_LE(piece.tensor_offset + piece.bytes, assembled[t].size());
            std::memcpy(assembled[t].data() + piece.tensor_offset, slot.data() + piece.bucket_offset,
                        piece.bytes);
            for (std::size_t b = 0; b < piece.bytes; ++b) ASSERT_EQ(written[t][piece.tensor_offset + b]++, 0);
            total += piece.bytes;
        }
    }
    EXPECT_EQ(total, plan.bytes);
    for (std::size_t t = 0; t < whole.size(); ++t) {
        EXPECT_EQ(assembled[t], whole[t]) << plan.tensors[t].info.name;
        for (const int count : written[t]) ASSERT_EQ(count, 1) << plan.tensors[t].info.name;
    }
}

}  // namespace tandem::sync
