// One pass over flat states of which some are offloaded, chunk by chunk: while a chunk is computed the next one
// is read and the one before is written back, each on a stream of its own: a bus carries both ways at once.
// No more than kChunksAlive chunks of an offloaded state are in memory.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "trainer/offload/flat_state.h"

namespace tandem::trainer {

// Elements of a chunk: a multiple of every vector width, so that a kernel treats each element as it would in
// one pass over all of them. 4 MiB to and from a file; 32 MiB over a GPU's bus, where a copy costs some
// microseconds before its first byte, and where three chunks of AdamW's three states are 288 MiB.
constexpr std::int64_t chunk_elements(Device device) {
    return device.type == DeviceType::cpu ? 1 << 20 : 8 << 20;
}
constexpr int kChunksAlive = 3;

// body(first, parts): parts[i] are the elements [first, first + parts[i].numel()) of states[i], float32; what
// it writes there is kept. All states are of one size, on the streams' device. Blocking. Reads go through
// `in`, writes through `out`, which must not be used otherwise meanwhile.
void in_chunks(Stream& in, Stream& out, Stream& compute, std::span<FlatState* const> states,
               const std::function<void(std::int64_t first, const std::vector<Tensor>& parts)>& body);

}  // namespace tandem::trainer
