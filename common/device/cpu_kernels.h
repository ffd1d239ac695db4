// Devices whose kernels are the CPU's functions: the CPU itself, and GPUs that have none of their own (a
// test's). On such a GPU they are launched in the order of its streams and find the bytes of its memory at an
// alias.
#pragma once

#include <functional>

#include "common/device/stream.h"

namespace tandem {

// True for the CPU. Cheap.
bool computes_on_cpu(Device device);

// The address at which a CPU function finds the bytes. Every other address, the host's too, is its own alias.
std::byte* host_alias(std::byte* data);
const std::byte* host_alias(const std::byte* data);
inline Span host_alias(Span span) {
    return {host_alias(span.data), span.bytes};
}
inline ConstSpan host_alias(ConstSpan span) {
    return {host_alias(span.data), span.bytes};
}

// Launches `work` on a GPU that computes on the CPU, in the stream's order. It sees memory through
// host_alias(), and what it captures must live until the stream is past it. Throws InvalidArgument on any
// other stream.
void launch_on_cpu(Stream& stream, std::function<void()> work);

// Whether the stream, one of a GPU that computes on the CPU, keeps its launches for a graph.
bool recording(Stream& stream);

}  // namespace tandem
