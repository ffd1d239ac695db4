// What a staged version has changed since another one, as the elements that must be written over that one's. For
// servers that take single elements of a tensor: a tensor's name, flat indices into it and the new elements there.
// Elements are compared as bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/device/memory.h"
#include "common/device/stream.h"
#include "engine_adapter/engine.h"
#include "engine_adapter/gpu_staging/packed_layout.h"

namespace tandem::engine {

// Elements of one tensor. Listed ones are in host memory; of the others every element from `first` on is meant, and lies
// where it is staged.
struct ChangedRun {
    std::size_t tensor = 0;
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    Buffer indices = {};  // int32 [count], rising; empty: not listed
    Buffer values = {};   // [count]

    bool listed() const { return indices.bytes() > 0; }
    std::uint64_t bytes(std::size_t width) const { return count * (sizeof(std::int32_t) + width); }
};

// The runs come in the tensors' order, those of one tensor one behind the other; none takes more than run_bytes, by its
// indices and its elements, but that it has one element (0: each tensor is one run).
class ChangedRuns {
  public:
    // Both are borrowed; `layout` says where a version's tensors lie in its memory. Throws BadInput naming a tensor of
    // more elements than int32 counts, or of a dtype that has no NaN (float32, bfloat16 and float16 have).
    ChangedRuns(const std::vector<TensorInfo>& tensors, const PackedLayout& layout, std::uint64_t run_bytes);

    // Both versions are in memory of the stream's device, whose device_pool() follows the stream; `base` is made equal to
    // `staged` (where this throws: to a part of it). Blocks. Takes of the device as much as the largest run has elements,
    // and of the host what is listed, up to as many bytes as a version has: what changes beyond that, and runs of which
    // nearly all has changed, are not listed. Throws BadInput naming a tensor that has a NaN among what would be written:
    // servers take it for "unchanged".
    std::vector<ChangedRun> since(Stream& stream, ConstSpan staged, Span base) const;
    // The same for every element of every tensor: none is listed.
    std::vector<ChangedRun> all(Stream& stream, ConstSpan staged, Span base) const;

  private:
    struct Piece {
        std::size_t tensor = 0;
        std::uint64_t first = 0;
        std::uint64_t count = 0;
    };
    std::size_t width(const Piece& piece) const { return dtype_size(tensors_[piece.tensor].dtype); }
    std::size_t begin(const Piece& piece) const;
    std::size_t bytes(const Piece& piece) const { return piece.count * width(piece); }
    ChangedRun whole(Stream& stream, const Piece& piece, ConstSpan staged) const;

    const std::vector<TensorInfo>& tensors_;
    const PackedLayout& layout_;
    std::vector<Piece> pieces_;
    std::size_t largest_ = 0;  // bytes of a piece's elements
};

}  // namespace tandem::engine
