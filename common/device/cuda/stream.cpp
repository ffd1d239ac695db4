// CUDA streams and events behind Stream and Event.
#include "common/device/cuda/backend.h"

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "common/device/cuda/capture.h"
#include "common/device/cuda/driver.h"
#include "common/device/cuda/memory.h"
#include "common/error.h"
#include "common/log.h"

namespace tandem {
namespace detail {
namespace {

using cuda::check;
using cuda::driver;

constexpr auto kSpin =
    std::chrono::milliseconds(2);  // before a waiting thread sleeps between two looks: a bucket's copy

// Functions that the host runs once it has waited for the stream, which never stops for them: a host function
// of CUDA's would keep the GPU idle until a thread of the driver's has woken and run it.
class HostCalls {
  public:
    void add(std::function<void()> call) {
        const std::lock_guard lock(mutex_);
        calls_.push_back(std::move(call));
        ++added_;
    }
    std::uint64_t added() {
        const std::lock_guard lock(mutex_);
        return added_;
    }
    // Runs those of the first `until` that have not run, in order. Another caller waits until they have. The
    // first exception sticks, and the calls behind it are dropped.
    void run(std::uint64_t until) {
        const std::lock_guard alone(running_);
        while (ran_ < until) {
            const std::function<void()> call = take();
            if (error_) continue;
            try {
                call();
            } catch (...) {
                error_ = std::current_exception();
            }
        }
        if (error_) std::rethrow_exception(error_);
    }

  private:
    std::function<void()> take() {
        const std::lock_guard lock(mutex_);
        std::function<void()> call = std::move(calls_.front());
        calls_.pop_front();
        ++ran_;
        return call;
    }
    std::mutex running_;  // and for ran_ and error_
    std::uint64_t ran_ = 0;
    std::exception_ptr error_;
    std::mutex mutex_;
    std::deque<std::function<void()>> calls_;
    std::uint64_t added_ = 0;
};

// One mark, and the CUDA event that carries it.
class CudaEvent final : public EventState {
  public:
    CudaEvent(Device device, std::string stream) : device_(device), stream_(std::move(stream)) {
        check(driver().cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    ~CudaEvent() override {
        try {
            cuda::make_current(device_);
            check(driver().cuEventDestroy(event_), "cuEventDestroy");
        } catch (const std::exception& error) {
            log_debug("an event of stream '{}': {}", stream_, error.what());
        }
    }
    CudaEvent(const CudaEvent&) = delete;
    CudaEvent& operator=(const CudaEvent&) = delete;

    CUevent native() const { return event_; }

    Poll poll() override {
        const CUresult result = query();
        if (result == CUDA_ERROR_NOT_READY) return Poll::pending;
        return result == CUDA_SUCCESS ? Poll::done : Poll::failed;
    }

    void wait(Deadline deadline) override {
        const auto spin_until = Deadline::Clock::now() + kSpin;
        for (;;) {
            const CUresult result = query();
            if (result != CUDA_ERROR_NOT_READY) return finish(result);
            if (deadline.passed())
                throw DeadlineExceeded("stream " + stream_, "event", "not reached within the deadline");
            if (Deadline::Clock::now() > spin_until) {
                std::this_thread::sleep_for(std::chrono::microseconds(20));
            } else {
                std::this_thread::yield();
            }
        }
    }

    void wait() override {
        cuda::make_current(device_);
        finish(driver().cuEventSynchronize(event_));
    }

  private:
    void finish(CUresult result) const { check(result, ("work on stream '" + stream_ + "'").c_str()); }
    CUresult query() const {
        cuda::make_current(device_);
        return driver().cuEventQuery(event_);
    }
    Device device_;
    std::string stream_;
    CUevent event_ = nullptr;
};

// A graph, ready to be launched.
class CudaGraph final : public RecordedWork {
  public:
    CudaGraph(Device device, CUgraph graph) : device_(device) {
        const CUresult result = driver().cuGraphInstantiateWithFlags(&graph_, graph, 0);
        (void)driver().cuGraphDestroy(graph);
        check(result, "cuGraphInstantiateWithFlags");
    }
    ~CudaGraph() override {
        try {
            cuda::make_current(device_);
            check(driver().cuGraphExecDestroy(graph_), "cuGraphExecDestroy");
        } catch (const std::exception& error) {
            log_debug("a graph of {}: {}", to_string(device_), error.what());
        }
    }
    CudaGraph(const CudaGraph&) = delete;
    CudaGraph& operator=(const CudaGraph&) = delete;

    CUgraphExec native() const { return graph_; }

  private:
    Device device_;
    CUgraphExec graph_ = nullptr;
};

class CudaStream final : public StreamBackend {
  public:
    CudaStream(Device device, std::string name) : device_(device), name_(std::move(name)) {
        cuda::make_current(device_);
        check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
    ~CudaStream() override {
        try {
            drain();  // host calls that were not waited for are dropped: what they would write may be gone
        } catch (const std::exception& error) {
            log_debug("stream '{}' ended with a pending error: {}", name_, error.what());
        }
        try {
            cuda::make_current(device_);
            kept_by_ops.reset();
            check(driver().cuStreamDestroy(stream_), "cuStreamDestroy");
        } catch (const std::exception& error) {
            log_debug("stream '{}': {}", name_, error.what());
        }
    }
    CudaStream(const CudaStream&) = delete;
    CudaStream& operator=(const CudaStream&) = delete;

    Device device() const override { return device_; }
    bool is_inline() const override { return false; }
    const std::string& name() const override { return name_; }

    void enqueue(std::function<void()> work) override {
        cuda::make_current(device_);
        work();
    }

    void call_host(std::function<void()> work) override {
        require(!recording_, "stream '{}' records a graph, which takes no work of the host's", name_);
        host_calls_.add(std::move(work));
    }

    std::shared_ptr<EventState> record() override {
        cuda::make_current(device_);
        auto event = std::make_shared<CudaEvent>(device_, name_);
        check(driver().cuEventRecord(event->native(), stream_), "cuEventRecord");
        return event;
    }

    void wait(std::shared_ptr<EventState> event) override {
        const auto* of_gpu = dynamic_cast<const CudaEvent*>(event.get());
        if (of_gpu == nullptr) {
            event->wait();
            return;
        }
        cuda::make_current(device_);
        check(driver().cuStreamWaitEvent(stream_, of_gpu->native(), CU_EVENT_WAIT_DEFAULT),
              "cuStreamWaitEvent");
    }

    void synchronize() override {
        const std::uint64_t until = host_calls_.added();
        drain();
        host_calls_.run(until);
    }

    void copy(ConstSpan from, Span to) override {
        cuda::make_current(device_);
        check(driver().cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to.data),
                                     reinterpret_cast<CUdeviceptr>(from.data), from.bytes, stream_),
              "cuMemcpyAsync");
    }

    void fill_zero(Span memory) override {
        cuda::make_current(device_);
        check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(memory.data), 0, memory.bytes, stream_),
              "cuMemsetD8Async");
    }

    std::shared_ptr<RecordedWork> capture(const std::function<void()>& record) override {
        const cuda::CaptureScope alone;
        cuda::make_current(device_);
        // Other threads go on using the GPU's other streams meanwhile.
        check(driver().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              "cuStreamBeginCapture");
        CUgraph graph = nullptr;
        recording_ = true;
        try {
            record();
        } catch (...) {
            recording_ = false;
            cuda::make_current(device_);
            if (driver().cuStreamEndCapture(stream_, &graph) == CUDA_SUCCESS)
                (void)driver().cuGraphDestroy(graph);
            throw;
        }
        recording_ = false;
        cuda::make_current(device_);
        check(driver().cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
        return std::make_shared<CudaGraph>(device_, graph);
    }

    void replay(const std::shared_ptr<RecordedWork>& work) override {
        cuda::make_current(device_);
        check(driver().cuGraphLaunch(std::static_pointer_cast<CudaGraph>(work)->native(), stream_),
              "cuGraphLaunch");
    }

    void* native() override {
        cuda::make_current(device_);
        return stream_;
    }

  private:
    void drain() {
        cuda::make_current(device_);
        check(driver().cuStreamSynchronize(stream_), ("work on stream '" + name_ + "'").c_str());
    }

    Device device_;
    std::string name_;
    CUstream stream_ = nullptr;
    bool recording_ = false;
    HostCalls host_calls_;
};

}  // namespace

}  // namespace detail

std::shared_ptr<detail::StreamBackend> cuda::make_stream(Device device, std::string name) {
    keep_freed(device);
    return std::make_shared<detail::CudaStream>(device, std::move(name));
}

}  // namespace tandem
