// Streams of the emulated GPU: workers that reach device memory through its alias.
#include "tests/emulated_gpu/stream.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <set>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "tests/emulated_gpu/emulated.h"

namespace tandem::emulated {
namespace {

using detail::EventState;
using detail::RecordedWork;
using detail::StreamBackend;
using detail::WorkerStream;

class EmulatedStream;

// What a test wants refused, as a real GPU's driver would at the end of a recording: TANDEM_EMULATED_GRAPHS.
bool graphs_refused() {
    const char* text = std::getenv("TANDEM_EMULATED_GRAPHS");
    const std::string_view word = text == nullptr ? "" : text;
    if (!word.empty() && word != "refused")
        throw ConfigError("environment", "TANDEM_EMULATED_GRAPHS",
                          fmt::format("'{}' is not 'refused': the emulated GPU then records no graph", word));
    return !word.empty();
}

struct Live {
    std::mutex mutex;
    std::set<EmulatedStream*> streams;
};

Live& live() {
    static Live* instance = new Live;
    return *instance;
}

// Launches that were kept instead of run. What they gave back meanwhile is theirs until they are gone.
struct Recording final : RecordedWork {
    explicit Recording(Device on) : device(on) {}
    ~Recording() override {
        drain_streams(device);
        for (const auto& work : given_back) work();
    }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    Device device;
    std::vector<std::function<void()>> launches;
    std::vector<std::function<void()>> given_back;
    std::set<const std::byte*> taken;                // and not given back
    std::vector<std::function<void()>> not_its_own;  // blocks taken before and given back meanwhile
};

thread_local const EmulatedStream* t_recording = nullptr;  // whose work this thread records
thread_local bool t_in_host_function = false;

// As on a GPU: a host function of a stream may not call the device.
struct HostFunction {
    HostFunction() { t_in_host_function = true; }
    ~HostFunction() { t_in_host_function = false; }
};

class EmulatedStream final : public WorkerStream {
  public:
    EmulatedStream(Device device, std::string name) : WorkerStream(std::move(name)), device_(device) {
        const std::lock_guard lock(live().mutex);
        live().streams.insert(this);
    }
    ~EmulatedStream() override {
        const std::lock_guard lock(live().mutex);
        live().streams.erase(this);
    }
    EmulatedStream(const EmulatedStream&) = delete;
    EmulatedStream& operator=(const EmulatedStream&) = delete;

    Device device() const override { return device_; }
    void enqueue(std::function<void()> work) override { work(); }
    void launch_kernel(std::function<void()> work) { keep_or_launch(std::move(work)); }
    bool recording() const { return t_recording == this; }
    void took(const std::byte* block) {
        if (recording()) recording_->taken.insert(block);
    }
    void hand_back(const std::byte* block, std::function<void()> work) {
        if (!recording()) {
            push(std::move(work));
        } else if (recording_->taken.erase(block) > 0) {
            recording_->given_back.push_back(std::move(work));
        } else {
            recording_->not_its_own.push_back(std::move(work));
        }
    }
    void call_host(std::function<void()> work) override {
        require_no_recording("a host function is called, whose memory may have changed at the replay");
        require_no_host_function();
        push([work = std::move(work)] {
            const HostFunction scope;
            work();
        });
    }
    void copy(ConstSpan from, Span to) override {
        if (!owns(from.data) || !owns(to.data))
            require_no_recording("host memory is copied, which may have changed at the replay");
        keep_or_launch(
            [from = host_alias(from), to = host_alias(to)] { std::memcpy(to.data, from.data, from.bytes); });
    }
    void fill_zero(Span memory) override {
        keep_or_launch([memory = host_alias(memory)] { std::memset(memory.data, 0, memory.bytes); });
    }
    std::shared_ptr<EventState> record() override {
        require_no_recording("an event is recorded");
        require_no_host_function();
        return WorkerStream::record();
    }
    void wait(std::shared_ptr<EventState> event) override {
        require_no_recording("it waits for an event");
        require_no_host_function();
        WorkerStream::wait(std::move(event));
    }
    void synchronize() override {
        require_no_recording("it is synchronized");
        require_no_host_function();
        WorkerStream::synchronize();
    }

    std::shared_ptr<RecordedWork> capture(const std::function<void()>& record) override {
        require_no_recording("another one begins");
        auto recording = std::make_shared<Recording>(device_);
        recording_ = recording;
        t_recording = this;
        std::exception_ptr failure;
        try {
            record();
        } catch (...) {
            failure = std::current_exception();
        }
        recording_ = nullptr;
        t_recording = nullptr;
        for (auto& work : recording->not_its_own) push(std::move(work));
        if (failure) std::rethrow_exception(failure);
        if (graphs_refused())
            throw CudaError("cuStreamEndCapture", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
                            "TANDEM_EMULATED_GRAPHS wants it so");
        // A GPU's driver refuses both: the first at once, the second at the next launch.
        require(recording->not_its_own.empty(),
                "stream '{}' recorded a graph, and memory taken before was given back inside", name());
        require(recording->taken.empty(),
                "stream '{}' recorded a graph, and memory taken inside was not given back", name());
        return recording;
    }
    void replay(const std::shared_ptr<RecordedWork>& work) override {
        keep_or_launch([recording = std::static_pointer_cast<Recording>(work)] {
            for (const auto& launch : recording->launches) launch();
        });
    }

  private:
    void keep_or_launch(std::function<void()> work) {
        require_no_host_function();
        if (recording()) {
            recording_->launches.push_back(std::move(work));
        } else {
            push(std::move(work));
        }
    }
    void require_no_recording(const char* what) const {
        require(!recording(),
                "stream '{}' records a graph, and {}: a graph on an emulated GPU is of one stream", name(),
                what);
    }
    void require_no_host_function() const {
        require(!t_in_host_function,
                "a host function of a stream calls {} on stream '{}', which a GPU refuses",
                to_string(device_), name());
    }
    std::shared_ptr<Recording> recording_;  // of the thread that captures
    Device device_;
};

EmulatedStream& emulated_stream(StreamBackend& stream) {
    auto* emulated = dynamic_cast<EmulatedStream*>(&stream);
    require(emulated != nullptr, "stream '{}' is on {}, not on an emulated GPU", stream.name(),
            to_string(stream.device()));
    return *emulated;
}

}  // namespace

std::shared_ptr<StreamBackend> make_stream(Device device, std::string name) {
    return std::make_shared<EmulatedStream>(device, std::move(name));
}

void took(StreamBackend& stream, const std::byte* block) {
    emulated_stream(stream).took(block);
}

void hand_back(StreamBackend& stream, const std::byte* block, std::function<void()> work) {
    emulated_stream(stream).hand_back(block, std::move(work));
}

void drain_streams(Device device) noexcept {
    const std::lock_guard lock(live().mutex);
    for (EmulatedStream* stream : live().streams) {
        if (stream->device() != device || stream->on_worker()) continue;
        try {
            stream->synchronize();
        } catch (...) {  // NOLINT: the stream keeps its error for whoever asks it
        }
    }
}

bool recording_here() {
    return t_recording != nullptr;
}

bool recording(Stream& stream) {
    const auto* emulated = dynamic_cast<const EmulatedStream*>(&stream.backend());
    return emulated != nullptr && emulated->recording();
}

void launch(Stream& stream, std::function<void()> work) {
    emulated_stream(stream.backend()).launch_kernel(std::move(work));
}

Hold::Hold(Device device, const std::string& streams) {
    const std::shared_future<void> ended = ended_.get_future().share();
    const std::lock_guard lock(live().mutex);
    int held = 0;
    for (EmulatedStream* stream : live().streams) {
        if (stream->device() != device || stream->name() != streams) continue;
        stream->launch_kernel([ended] { ended.wait(); });
        ++held;
    }
    require(held > 0, "no stream '{}' on {} to hold", streams, to_string(device));
}

Hold::~Hold() {
    ended_.set_value();
}

}  // namespace tandem::emulated
