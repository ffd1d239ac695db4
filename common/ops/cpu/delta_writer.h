// Grows an encoding block by block in a target of the dense size: as gaps while changes are few, as a bitmap
// after a block with many, and not at all once only the dense encoding is left. The result is the smallest.
//
//   codec   the target meanwhile                        finish()
//   gaps    room for the count, values →, free, gaps →  writes the count, moves the gaps behind the values
//   bitmap  bitmap →, values →, free                    makes gaps of it if those are smaller
//   dense   nothing of use                              leaves it to the caller to copy all elements
#pragma once

#include <cstdint>

#include "common/ops/cpu/delta_kernels.h"
#include "common/ops/delta.h"

namespace tandem::ops::detail {

class DeltaWriter {
  public:
    static constexpr std::size_t kBlockElements = 2048;

    DeltaWriter(std::byte* to, std::size_t elements, std::size_t width);

    // Whether few changes are expected of the next block: add will write those over base.
    bool expects_few() const { return codec_ == DeltaCodec::gaps; }
    // The next elements, at most kBlockElements and, but for the last block, a multiple of 64, and which `more`
    // of them differ from base. Returns false when the caller has to write all of `fresh` over base.
    bool add(const std::byte* fresh, std::byte* base, std::size_t count, const std::byte* bits,
             std::size_t more);
    std::size_t changed() const { return changed_; }
    // Completes an encoding other than dense.
    DeltaCodec finish(std::size_t& bytes);

  private:
    bool append_gaps(std::size_t first, const std::uint16_t* positions, std::size_t count);
    void add_bitmap(const std::byte* fresh, std::size_t count, const std::byte* bits, std::size_t more);
    void gaps_to_bitmap();
    bool bitmap_to_gaps();

    const DeltaKernels& kernels_;
    std::byte* to_;
    std::size_t elements_, width_;
    std::size_t dense_bytes_, bitmap_bytes_;
    std::size_t gaps_limit_;  // gaps of so many bytes or more are no smaller than the bitmap
    DeltaCodec codec_;
    std::size_t at_ = 0;    // elements seen
    std::size_t next_ = 0;  // the element behind the last change
    std::size_t gap_bytes_ = 0;
    std::size_t changed_ = 0;
};

}  // namespace tandem::ops::detail
