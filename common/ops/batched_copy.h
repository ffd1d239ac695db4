// Many ranges copied in one go, with the cast and the checksum fused into the copy: each block is read from
// memory once, and written with non-temporal stores where the target will not be read soon by this core.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/device/stream.h"
#include "common/ops/backends.h"
#include "common/tensor/dtype.h"

namespace tandem::ops {

// XXH3-128 of a byte range.
struct Checksum {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    friend bool operator==(const Checksum&, const Checksum&) = default;
};
std::string to_hex(const Checksum& checksum);         // 32 lower-case digits
Checksum checksum_from_hex(const std::string& text);  // throws ProtocolError
Checksum checksum(ConstSpan bytes);
// One checksum for a list: of the digests themselves, in order. Not the checksum of the parts' bytes joined.
Checksum combine(std::span<const Checksum> parts);

struct CopyItem {
    ConstSpan from;
    Span to;
    // Equal dtypes copy bytes. Between float32, bfloat16 and float16 they are cast: rounded to nearest even,
    // and what float16 cannot hold becomes infinite (ops/half.h finds it beforehand).
    DType from_dtype = DType::uint8;
    DType to_dtype = DType::uint8;
    Checksum* checksum = nullptr;  // gets the checksum of the bytes written to `to`, in row order
    bool non_temporal = true;      // writes past the cache; `from` and `to` must not overlap
    // More than one row: `from` and `to` are the first row, the others follow at these distances (bytes).
    std::int64_t rows = 1;
    std::size_t from_stride = 0;
    std::size_t to_stride = 0;
};

// Runs the items in order on the stream. On the CPU each byte of the source is read once: the checksum is of
// what was written even when another process writes to the source meanwhile. An item whose `to.data` is null
// writes nothing and only gives its checksum; `to.bytes` still says how many bytes a row has. The memory and
// the checksums stay the caller's until the stream is past the call. The checksums are written before the
// stream's next work starts; on a GPU when the stream is synchronized past it. There items must not overlap,
// nor an item itself, unless source and target are the same, and both sides must be the GPU's or pinned
// memory.
void batched_copy(Stream& stream, std::span<const CopyItem> items);
// The checksum that batched_copy would give, without writing: item.to.data is not looked at. Synchronous.
Checksum copy_checksum(const CopyItem& item);
// The same for memory on the stream's device, after the stream's work so far.
Checksum copy_checksum(Stream& stream, const CopyItem& item);
Checksum checksum(Stream& stream, ConstSpan bytes);

TANDEM_BACKENDS(batched_copy)

}  // namespace tandem::ops
