// A bucket as it travels over TCP: the rows that its transfers keep and nothing between them, one transfer behind the
// other, each at a multiple of kPackedAlign. Both ends derive this from the plan (or from a delta's entries), so no
// message carries it. Pure.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine_adapter/engine.h"

namespace tandem::engine {

inline constexpr std::uint64_t kPackedAlign = 64;

// Where each transfer or entry begins and, last, the bytes of all of them. Sizes whose sum does not fit 64 bits are
// refused (ProtocolError).
std::vector<std::uint64_t> packed_offsets(std::span<const Transfer> bucket);
std::vector<std::uint64_t> packed_offsets(std::span<const DeltaEntry> entries);

// The trainer's end: the memory that makes a packed bucket. Borrows it.
class PackedBucket {
  public:
    // In order. stride: bytes from row to row.
    void add(const std::byte* from, std::uint64_t rows, std::uint64_t row_bytes, std::uint64_t stride);
    std::uint64_t bytes() const { return bytes_; }
    // The bytes [begin, end) as pieces of memory in `list`, at most one for each kilobyte and two more: what is shorter
    // is copied to `scratch`. Both are replaced, and valid until the next call with them.
    void pieces(std::uint64_t begin, std::uint64_t end, std::vector<iovec>& list,
                std::vector<std::byte>& scratch) const;

  private:
    struct Run {
        const std::byte* from;
        std::uint64_t rows, row_bytes, stride;
        std::uint64_t at;  // in the packed bucket
        std::uint64_t end() const { return at + rows * row_bytes; }
    };
    std::vector<Run> runs_;
    std::uint64_t bytes_ = 0;
};

}  // namespace tandem::engine
