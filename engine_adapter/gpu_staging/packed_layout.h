// How a version's tensors lie in one piece of memory so that a receiver can take them chunk by chunk, each chunk the
// tensors' bytes one behind the other: the packed form of vLLM's transfers, whose receiver cuts the same chunks from
// the tensors' sizes alone. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine_adapter/engine.h"

namespace tandem::engine {

struct PackedChunk {
    std::uint64_t begin = 0;           // in the memory
    std::uint64_t bytes = 0;           // of its tensors
    std::vector<std::size_t> tensors;  // by their index, in their order
};

struct PackedLayout {
    std::vector<PackedChunk> chunks;
    std::vector<std::uint64_t> begin;  // [tensor] in the memory, a multiple of its element's size
    std::uint64_t bytes = 0;           // of all the memory
};

// A chunk ends with the tensor that makes it larger than chunk_bytes: 0 makes each tensor one. Tensors keep their order, but that those of larger
// elements come first: a receiver views a tensor where the one before it ends.
PackedLayout lay_out_packed(const std::vector<TensorInfo>& tensors, std::uint64_t chunk_bytes);

}  // namespace tandem::engine
