// Stream captures and the rest of the process. While a stream is captured, whatever a thread queues on it
// goes into the graph, and waiting for its context is refused and may spoil the capture (CUDA programming
// guide, "Prohibited and Unhandled Operations"). So captures keep to themselves: other threads wait for their
// end, which is a matter of milliseconds, before they do either.
#pragma once

#include <mutex>
#include <shared_mutex>

#include "common/device/device.h"

namespace tandem::cuda {

bool capturing_here();  // this thread, on any stream

// A capture by this thread, one at a time in the process.
class CaptureScope {
  public:
    CaptureScope();
    ~CaptureScope();
    CaptureScope(const CaptureScope&) = delete;
    CaptureScope& operator=(const CaptureScope&) = delete;

  private:
    std::unique_lock<std::shared_mutex> lock_;
};

// No capture of another thread runs while it lives. Not to be nested.
class BesideCaptures {
  public:
    BesideCaptures();

  private:
    std::shared_lock<std::shared_mutex> lock_;
};

// Waits for all work of the device's context. Throws CudaError, also inside a capture of this thread.
void synchronize_context(Device device);

}  // namespace tandem::cuda
