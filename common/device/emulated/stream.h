// Streams of the emulated GPU.
#pragma once

#include "common/device/cpu/stream.h"

namespace tandem::detail {

std::shared_ptr<StreamBackend> make_emulated_stream(Device device, std::string name);

// Waits for every stream of the device, as cuMemFree does. Not for the one whose worker calls it.
void drain_emulated_streams(Device device) noexcept;

// Whether this thread records a graph: a GPU's driver then refuses memory outside the pools.
bool recording_here();

}  // namespace tandem::detail
