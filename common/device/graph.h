// Work of a GPU's stream, recorded once and launched again as one: what makes a decode step of hundreds of
// small kernels cost one launch. The launches replay with the addresses and scalars that they were recorded
// with: what changes from step to step must be read from the GPU's memory.
#pragma once

#include <functional>
#include <memory>

#include "common/device/stream.h"

namespace tandem {

namespace detail {
struct RecordedWork;
}

// Copies share the same recording.
class Graph {
  public:
    Graph() = default;
    // Calls `record` once on this thread, and keeps what it launches on `stream` instead of running it. It
    // may not synchronize, nor read or write the host's memory from an op; memory that it takes and gives
    // back stays the graph's for its life, memory taken before may not be given back inside. Run the same
    // work once before, outside: libraries set themselves up on first use. Throws InvalidArgument on a stream
    // of the CPU; what `record` throws passes through.
    static Graph capture(Stream& stream, const std::function<void()>& record);

    bool recorded() const { return work_ != nullptr; }
    void launch(
        Stream& stream) const;  // in the stream's order; a stream of the device that it was recorded on

  private:
    std::shared_ptr<detail::RecordedWork> work_;
    Device device_;
};

}  // namespace tandem
