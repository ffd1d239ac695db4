// The checks by which delta_apply accepts an encoding, on the CPU and on a GPU, whose backends count what
// these judge. Host code; all throw ProtocolError.
#pragma once

#include <cstdint>

#include "common/ops/delta.h"

namespace tandem::ops::checks {

struct GapsLayout {
    std::size_t count = 0;    // changes announced
    std::size_t gaps_at = 0;  // bytes; the values begin at 4
    std::size_t gap_bytes = 0;
};

// `elements`: rows * row_elements. True for none and dense, which need no other check.
bool delta_is_plain(DeltaCodec codec, std::size_t bytes, std::size_t width, std::size_t elements);

void gaps_have_count(std::size_t bytes);
GapsLayout gaps_layout(std::uint32_t count, std::size_t bytes, std::size_t width, std::size_t elements);
// sum: of all gap bytes; changes: how many of them are not 255; last: the last gap byte.
void gaps_fit(const GapsLayout& layout, std::uint64_t sum, std::uint64_t changes, std::uint8_t last,
              std::size_t elements);

std::size_t bitmap_bytes(std::size_t bytes, std::size_t elements);  // throws when there are fewer
void bitmap_fits(std::size_t bytes, std::uint64_t changes, std::uint8_t last, std::size_t width,
                 std::size_t elements);

}  // namespace tandem::ops::checks
