// Streams and events of every kind of device; what differs is behind StreamBackend.
#include "common/device/stream.h"

#include <array>
#include <mutex>
#include <vector>

#include "common/device/counting/counting.h"
#include "common/device/cpu/stream.h"
#include "common/device/cuda/native.h"
#include "common/device/device_backend.h"
#include "common/error.h"

namespace tandem {
namespace {

constexpr std::size_t kMaxGpus = 64;
using Backend = std::shared_ptr<detail::StreamBackend>;

// Streams in the order in which they came. A stream leaves by ending, on whatever thread, and what it had
// pushed aside counts again: a temporary one takes nothing away.
class Streams {
  public:
    void add(const Backend& stream) {
        std::erase_if(streams_, [&](const auto& one) {
            return one.expired() || (!one.owner_before(stream) && !stream.owner_before(one));
        });
        streams_.push_back(stream);
    }
    Backend first() const { return first_alive(streams_.begin(), streams_.end()); }
    Backend last() const { return first_alive(streams_.rbegin(), streams_.rend()); }

  private:
    template <typename Iterator>
    static Backend first_alive(Iterator from, Iterator to) {
        for (; from != to; ++from) {
            if (Backend alive = from->lock()) return alive;
        }
        return nullptr;
    }
    std::vector<std::weak_ptr<detail::StreamBackend>> streams_;
};

thread_local std::array<Streams, kMaxGpus> t_compute;

struct OfProcess {
    std::mutex mutex;
    std::array<Streams, kMaxGpus> compute;
    std::array<Streams, kMaxGpus> all;
};

OfProcess& of_process() {
    static OfProcess* instance = new OfProcess;
    return *instance;
}

std::shared_ptr<detail::StreamBackend> make_on_gpu(Device device, std::string name) {
    require_device(device);
    auto backend = detail::gpu_backend().make_stream(device, std::move(name));
    OfProcess& process = of_process();
    const std::lock_guard lock(process.mutex);
    process.all[static_cast<std::size_t>(device.index)].add(backend);
    return backend;
}

}  // namespace

namespace detail {

std::shared_ptr<RecordedWork> StreamBackend::capture(const std::function<void()>&) {
    throw InvalidArgument("stream '" + name() + "' is on the CPU, which has no graphs: run the work itself");
}

void StreamBackend::replay(const std::shared_ptr<RecordedWork>&) {
    throw InvalidArgument("stream '" + name() + "' is on the CPU, which has no graphs");
}

std::shared_ptr<StreamBackend> compute_stream(Device device) {
    const auto index = static_cast<std::size_t>(device.index);
    if (auto own = t_compute[index].last()) return own;
    OfProcess& process = of_process();
    const std::lock_guard lock(process.mutex);
    auto computes = process.compute[index].first();
    return computes ? computes : process.all[index].first();
}

}  // namespace detail

Poll Event::poll() const {
    return state_ ? state_->poll() : Poll::done;
}

void Event::wait(Deadline deadline) const {
    if (state_) state_->wait(deadline);
}

Stream::Stream(std::shared_ptr<detail::StreamBackend> backend) : backend_(std::move(backend)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&& other) noexcept = default;
Stream::~Stream() = default;

Stream Stream::make_inline() {
    if (only_counts()) return Stream(detail::counting::make_stream(Device{}, "inline", true));
    return Stream(detail::make_inline_stream());
}

Stream Stream::make_worker(std::string name) {
    if (only_counts()) return Stream(detail::counting::make_stream(Device{}, std::move(name), false));
    return Stream(detail::make_worker_stream(std::move(name)));
}

Stream Stream::make(Device device, std::string name) {
    if (device.type == DeviceType::cpu) return make_worker(std::move(name));
    if (only_counts()) return Stream(detail::counting::make_stream(device, std::move(name), false));
    return Stream(make_on_gpu(device, std::move(name)));
}

Stream Stream::make_compute(Device device) {
    if (device.type == DeviceType::cpu) return make_inline();
    if (only_counts()) return make(device, "compute");  // no pool follows it
    Stream stream(make_on_gpu(device, "compute"));
    stream.use_for_allocations();
    OfProcess& process = of_process();
    const std::lock_guard lock(process.mutex);
    process.compute[static_cast<std::size_t>(device.index)].add(stream.backend_);
    return stream;
}

Device Stream::device() const {
    return backend_->device();
}
bool Stream::is_inline() const {
    return backend_->is_inline();
}
const std::string& Stream::name() const {
    return backend_->name();
}

void Stream::enqueue(std::function<void()> work) {
    backend_->enqueue(std::move(work));
}

void Stream::call_host(std::function<void()> work) {
    backend_->call_host(std::move(work));
}

Event Stream::record() {
    Event event;
    event.state_ = backend_->record();
    return event;
}

void Stream::wait(const Event& event) {
    if (event.state_) backend_->wait(event.state_);
}

void Stream::synchronize() {
    backend_->synchronize();
}

std::shared_ptr<void>& Stream::kept_by_ops() {
    return backend_->kept_by_ops;
}

void Stream::use_for_allocations() {
    if (device().type == DeviceType::cuda && !only_counts())
        t_compute[static_cast<std::size_t>(device().index)].add(backend_);
}

cudaStream_t cuda::native(Stream& stream) {
    void* native = stream.backend().native();
    require(native != nullptr, "stream '{}' is on {}, which has no CUDA stream", stream.name(),
            to_string(stream.device()));
    return static_cast<cudaStream_t>(native);
}

void copy(Stream& stream, ConstSpan from, Span to) {
    require(from.bytes == to.bytes, "copy of {} bytes into {}", from.bytes, to.bytes);
    if (from.bytes > 0) stream.backend().copy(from, to);
}

void fill_zero(Stream& stream, Span memory) {
    if (memory.bytes > 0) stream.backend().fill_zero(memory);
}

}  // namespace tandem
