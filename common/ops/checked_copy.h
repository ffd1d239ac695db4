// Lists of copies with checksums on whatever device the memory is on: what batched_copy and copy_checksum are
// on the CPU.
#pragma once

#include <span>

#include "common/device/stream.h"
#include "common/ops/batched_copy.h"

namespace tandem::ops {

// Runs the items in the stream's order. An item whose `to.data` is null writes nothing and only wants its
// checksum; `to.bytes` still says how many bytes a row has. All memory is on the stream's device and stays
// the caller's, like the checksums, until the stream is synchronized past it: then the checksums are there.
void checked_copy(Stream& stream, std::span<const CopyItem> items);

}  // namespace tandem::ops
