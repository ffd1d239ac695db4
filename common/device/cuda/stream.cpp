// CUDA streams and events behind Stream and Event.
#include "common/device/cuda/stream.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "common/device/cuda/capture.h"
#include "common/device/cuda/driver.h"
#include "common/device/cuda/native.h"
#include "common/error.h"
#include "common/log.h"

namespace tandem {
namespace detail {
namespace {

using cuda::check;
using cuda::driver;

constexpr auto kSpin = std::chrono::microseconds(200);  // before a waiting thread sleeps between two looks

// What host calls leave behind for the stream: the first exception.
struct HostError {
    std::mutex mutex;
    std::exception_ptr first;

    std::exception_ptr get() {
        const std::lock_guard lock(mutex);
        return first;
    }
};

// One mark, and the CUDA event that carries it.
class CudaEvent final : public EventState {
  public:
    CudaEvent(Device device, std::string stream, std::shared_ptr<HostError> host_error)
        : device_(device), stream_(std::move(stream)), host_error_(std::move(host_error)) {
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
        return result == CUDA_SUCCESS && !host_error_->get() ? Poll::done : Poll::failed;
    }

    void wait(Deadline deadline) override {
        const auto spin_until = Deadline::Clock::now() + kSpin;
        for (;;) {
            const CUresult result = query();
            if (result != CUDA_ERROR_NOT_READY) return finish(result);
            if (deadline.passed())
                throw DeadlineExceeded("stream " + stream_, "event", "not reached within the deadline");
            if (Deadline::Clock::now() > spin_until)
                std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    }

    void wait() override {
        cuda::make_current(device_);
        finish(driver().cuEventSynchronize(event_));
    }

  private:
    void finish(CUresult result) const {
        check(result, ("work on stream '" + stream_ + "'").c_str());
        if (const auto error = host_error_->get()) std::rethrow_exception(error);
    }
    CUresult query() const {
        cuda::make_current(device_);
        return driver().cuEventQuery(event_);
    }
    Device device_;
    std::string stream_;
    std::shared_ptr<HostError> host_error_;
    CUevent event_ = nullptr;
};

struct HostCall {
    std::function<void()> work;
    std::shared_ptr<HostError> error;
};

void run(HostCall& call) {
    if (call.error->get()) return;
    try {
        call.work();
    } catch (...) {
        const std::lock_guard lock(call.error->mutex);
        call.error->first = std::current_exception();
    }
}

void CUDA_CB run_once(void* data) {
    const std::unique_ptr<HostCall> call(static_cast<HostCall*>(data));
    run(*call);
}

void CUDA_CB run_again(void* data) {  // of a graph, which owns it
    run(*static_cast<HostCall*>(data));
}

// A graph, ready to be launched.
class CudaGraph final : public RecordedWork {
  public:
    CudaGraph(Device device, CUgraph graph, std::vector<std::unique_ptr<HostCall>> calls)
        : device_(device), calls_(std::move(calls)) {
        const CUresult result = driver().cuGraphInstantiateWithFlags(&graph_, graph, 0);
        (void)driver().cuGraphDestroy(graph);
        check(result, "cuGraphInstantiateWithFlags");
    }
    ~CudaGraph() override {
        try {
            if (!calls_.empty()) cuda::synchronize_context(device_);  // a launch may use them
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
    std::vector<std::unique_ptr<HostCall>> calls_;
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
            synchronize();
        } catch (const std::exception& error) {
            log_debug("stream '{}' ended with a pending error: {}", name_, error.what());
        }
        try {
            cuda::make_current(device_);
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
        cuda::make_current(device_);
        auto call = std::make_unique<HostCall>(HostCall{std::move(work), host_error_});
        check(driver().cuLaunchHostFunc(stream_, recording_ ? run_again : run_once, call.get()),
              "cuLaunchHostFunc");
        if (recording_) {
            recorded_calls_.push_back(std::move(call));
        } else {
            (void)call.release();  // run_once's now
        }
    }

    std::shared_ptr<EventState> record() override {
        cuda::make_current(device_);
        auto event = std::make_shared<CudaEvent>(device_, name_, host_error_);
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
        cuda::make_current(device_);
        check(driver().cuStreamSynchronize(stream_), ("work on stream '" + name_ + "'").c_str());
        if (const auto error = host_error_->get()) std::rethrow_exception(error);
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
        recorded_calls_.clear();
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
        return std::make_shared<CudaGraph>(device_, graph, std::move(recorded_calls_));
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
    Device device_;
    std::string name_;
    CUstream stream_ = nullptr;
    bool recording_ = false;
    std::vector<std::unique_ptr<HostCall>> recorded_calls_;
    std::shared_ptr<HostError> host_error_ = std::make_shared<HostError>();
};

}  // namespace

std::shared_ptr<StreamBackend> make_cuda_stream(Device device, std::string name) {
    return std::make_shared<CudaStream>(device, std::move(name));
}

}  // namespace detail

cudaStream_t cuda::native(Stream& stream) {
    void* native = stream.backend().native();
    require(native != nullptr, "stream '{}' is on {}, which has no CUDA stream", stream.name(),
            to_string(stream.device()));
    return static_cast<cudaStream_t>(native);
}

}  // namespace tandem
