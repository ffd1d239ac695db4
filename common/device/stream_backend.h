// The interface behind Stream and Event, which each kind of stream implements: inline and worker (cpu/), CUDA
// (cuda/).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/device/stream.h"

namespace tandem::detail {

struct EventState {
    virtual ~EventState() = default;
    virtual Poll poll() = 0;
    virtual void wait(Deadline deadline) = 0;  // rethrows the stream's error; throws DeadlineExceeded
    // Without a deadline of its own: the work that the event waits for has one, and fails the event.
    virtual void wait() = 0;
};

// The contents of a graph (common/device/graph.h).
struct RecordedWork {
    virtual ~RecordedWork() = default;
};

class StreamBackend {
  public:
    virtual ~StreamBackend() = default;  // drains
    virtual Device device() const = 0;
    virtual bool is_inline() const = 0;
    virtual const std::string& name() const = 0;
    virtual void enqueue(std::function<void()> work) = 0;
    virtual void call_host(std::function<void()> work) = 0;
    virtual std::shared_ptr<EventState> record() = 0;  // null: done
    virtual void wait(std::shared_ptr<EventState> event) = 0;
    virtual void synchronize() = 0;
    virtual void copy(ConstSpan from, Span to) = 0;  // equal sizes
    virtual void fill_zero(Span memory) = 0;
    // For graph.h; throw InvalidArgument on the CPU.
    virtual std::shared_ptr<RecordedWork> capture(const std::function<void()>& record);
    virtual void replay(const std::shared_ptr<RecordedWork>& work);
    virtual void* native() { return nullptr; }  // the CUDA stream, its device made current

    std::shared_ptr<void> kept_by_ops;  // goes when all work is done, while the stream can still free it
};

// The stream that orders device_pool(device)'s memory for the calling thread: its own latest compute stream
// that is alive, else the process's first one, else the first stream that the process has there. Null when
// there is none.
std::shared_ptr<StreamBackend> compute_stream(Device device);

}  // namespace tandem::detail
