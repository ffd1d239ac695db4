// Streams of the emulated GPU: workers that reach device memory through its alias.
#include "common/device/emulated/stream.h"

#include <cstring>
#include <set>

#include "common/device/emulated.h"

namespace tandem {
namespace detail {
namespace {

class EmulatedStream;

struct Live {
    std::mutex mutex;
    std::set<EmulatedStream*> streams;
};

Live& live() {
    static Live* instance = new Live;
    return *instance;
}

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
    void launch_emulated(std::function<void()> work) override { launch(std::move(work)); }
    void copy(ConstSpan from, Span to) override {
        launch([from = emulated::host_alias(from), to = emulated::host_alias(to)] {
            std::memcpy(to.data, from.data, from.bytes);
        });
    }
    void fill_zero(Span memory) override {
        launch([memory = emulated::host_alias(memory)] { std::memset(memory.data, 0, memory.bytes); });
    }

  private:
    Device device_;
};

}  // namespace

std::shared_ptr<StreamBackend> make_emulated_stream(Device device, std::string name) {
    return std::make_shared<EmulatedStream>(device, std::move(name));
}

void drain_emulated_streams(Device device) noexcept {
    const std::lock_guard lock(live().mutex);
    for (EmulatedStream* stream : live().streams) {
        if (stream->device() != device || stream->on_worker()) continue;
        try {
            stream->synchronize();
        } catch (...) {  // NOLINT: the stream keeps its error for whoever asks it
        }
    }
}

}  // namespace detail

void emulated::launch(Stream& stream, std::function<void()> work) {
    stream.backend().launch_emulated(std::move(work));
}

}  // namespace tandem
