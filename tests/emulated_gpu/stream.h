// Streams of the emulated GPU.
#pragma once

#include "common/device/cpu/stream.h"

namespace tandem::emulated {

std::shared_ptr<detail::StreamBackend> make_stream(Device device, std::string name);

// Memory of the pool, taken and given back when the stream, one of an emulated GPU, gets there; while it
// records, `block` is the recording's from the first to its end.
void took(detail::StreamBackend& stream, const std::byte* block);
void hand_back(detail::StreamBackend& stream, const std::byte* block, std::function<void()> work);

// Waits for every stream of the device, as cuMemFree does. Not for the one whose worker calls it.
void drain_streams(Device device) noexcept;

// Whether this thread records a graph: a GPU's driver then refuses memory outside the pools.
bool recording_here();

}  // namespace tandem::emulated
