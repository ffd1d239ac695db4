// The emulated GPU: TANDEM_EMULATED_GPUS=N in the environment makes cuda:0 … cuda:N-1 available in every
// program of a build with tests, so that all that surrounds kernels is tested without hardware. It is a test
// device and never called a GPU.
//
// Its memory carries addresses that the host may not touch (a crash shows the culprit); the same bytes lie,
// accessible, at the alias of the address, for the "kernels". Its streams are worker threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <string>

#include "common/device/device.h"
#include "common/device/export.h"
#include "common/device/stream.h"

namespace tandem {

bool is_emulated(Device device);

namespace emulated {

int gpu_count();  // TANDEM_EMULATED_GPUS, read once; 0: none

// Whether the address is an emulated GPU's. Cheap; false for an alias.
bool owns(const void* address);

// Where a CPU function finds the bytes. Host memory is its own alias.
std::byte* host_alias(std::byte* data);
inline const std::byte* host_alias(const std::byte* data) {
    return host_alias(const_cast<std::byte*>(data));
}
inline Span host_alias(Span span) {
    return {host_alias(span.data), span.bytes};
}
inline ConstSpan host_alias(ConstSpan span) {
    return {host_alias(span.data), span.bytes};
}

// Bytes of an ExportArena of this process, by its handle: what another process would read there.
std::string exported_bytes(const IpcHandle& handle, std::uint64_t offset, std::size_t bytes);

// Whether the stream, one of an emulated GPU, keeps its work for a graph.
bool recording(Stream& stream);

// Runs `work` on the emulated GPU's worker in the stream's order: an emulated kernel launch. It sees memory
// through host_alias(), and what it captures must live until the stream is past it. Stream::enqueue() on such
// a stream runs its function at once, as on a GPU. Throws InvalidArgument on any other stream.
void launch(Stream& stream, std::function<void()> work);

// While one lives, what is queued from now on waits on the GPU's streams of this name: a GPU that is slow. It holds up
// whoever waits for them, the giving back of the GPU's memory too.
class Hold {
  public:
    Hold(Device device, const std::string& streams);  // throws InvalidArgument: there is no such stream
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

  private:
    std::promise<void> ended_;
};

}  // namespace emulated
}  // namespace tandem
