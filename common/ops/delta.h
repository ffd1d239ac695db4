// Lossless deltas: the elements of a range that differ from an older copy, found by comparing both in one
// dtype, sent as an encoding and written over the old copy. Elements are 2 or 4 bytes wide (bfloat16,
// float32) and compared as bits, so -0 and NaNs survive.
//
//   codec   what the encoding holds                                           smallest for
//   none    nothing                                                           no change
//   gaps    u32 count · count values · gaps, a byte each: how many            few changes
//           unchanged elements come before the next changed one; 255:
//           255 unchanged ones, and no change behind them
//   bitmap  a bit for each element, low bit first · the changed values        some changes
//   dense   all elements                                                      most elements changed
#pragma once

#include <cstdint>
#include <span>

#include "common/device/device.h"
#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/ops/batched_copy.h"

namespace tandem::ops {

enum class DeltaCodec : std::uint32_t { none, gaps, bitmap, dense };

struct DeltaResult {
    DeltaCodec codec = DeltaCodec::none;
    std::size_t bytes = 0;  // size of the encoding
    std::int64_t changed = 0;
    Checksum content;  // of all new elements
    Checksum encoded;  // of the encoding
};

// The bytes that delta_encode may need for `elements` elements of `width` bytes: their dense size.
std::size_t delta_capacity(std::int64_t elements, std::size_t width);

// The new elements: rows of row_elements, `stride` bytes apart, in from_dtype; cast to to_dtype on the way
// (float32 ↔ bfloat16; float16 stays float16).
struct DeltaSource {
    const std::byte* data = nullptr;
    std::size_t stride = 0;
    std::int64_t rows = 0;
    std::int64_t row_elements = 0;
    DType from_dtype = DType::float32;
    DType to_dtype = DType::float32;
};

// Compares the new elements with `base` (packed, to_dtype), writes the smallest encoding to `to` (at least
// delta_capacity bytes) and the new elements over `base`. One pass over source and base. Synchronous.
DeltaResult delta_encode(const DeltaSource& source, Span base, Span to);
// The same with source, base and target on the stream's device, after the stream's work so far.
DeltaResult delta_encode(Stream& stream, const DeltaSource& source, Span base, Span to);

// Writes an encoding over `rows` rows of row_elements elements of `width` bytes at `to`, `stride` bytes
// apart. Checks everything before it writes: throws ProtocolError when the encoding does not fit (untrusted
// input).
void delta_apply(DeltaCodec codec, ConstSpan encoded, std::size_t width, std::int64_t rows,
                 std::int64_t row_elements, std::byte* to, std::size_t stride);

// The same with both on the stream's device, after the stream's work so far. Synchronous.
void delta_apply(Stream& stream, DeltaCodec codec, ConstSpan encoded, std::size_t width, std::int64_t rows,
                 std::int64_t row_elements, std::byte* to, std::size_t stride);

// Of an encoding by gaps or bitmap in host memory: the positions of the changed elements, in rising order from `first` on,
// to `positions`, which has room for as many as were changed. Returns the new elements, in that order, where they lie in
// the encoding. Throws ProtocolError as delta_apply, also where the room is of another size.
ConstSpan delta_positions(DeltaCodec codec, ConstSpan encoded, std::size_t width, std::int64_t elements,
                          std::int32_t first, std::span<std::int32_t> positions);

TANDEM_BACKENDS(delta_encode)
TANDEM_BACKENDS(delta_apply)

}  // namespace tandem::ops
