// Streams that drop what they are given. On streams beside the computation work lags behind: what was queued last is under
// way until somebody waits for it or queues more, as buffers that are in use meanwhile count, too.
#include "common/device/counting/counting.h"
#include "common/device/stream_backend.h"

namespace tandem::detail::counting {
namespace {

struct LaggingEvent final : EventState {
    bool done = false;
    Poll poll() override { return done ? Poll::done : Poll::pending; }
    void wait(Deadline) override { done = true; }
    void wait() override { done = true; }
};

class DroppingStream final : public StreamBackend {
  public:
    DroppingStream(Device device, std::string name, bool is_inline)
        : device_(device), name_(std::move(name)), is_inline_(is_inline) {}
    Device device() const override { return device_; }
    bool is_inline() const override { return is_inline_; }
    const std::string& name() const override { return name_; }
    void enqueue(std::function<void()>) override {}
    void call_host(std::function<void()>) override {}
    std::shared_ptr<EventState> record() override {
        if (is_inline_) return nullptr;
        synchronize();
        return last_ = std::make_shared<LaggingEvent>();
    }
    void wait(std::shared_ptr<EventState> event) override { event->wait(); }
    void synchronize() override {
        if (last_) last_->wait();
    }
    void copy(ConstSpan, Span) override {}
    void fill_zero(Span) override {}

  private:
    Device device_;
    std::string name_;
    bool is_inline_;
    std::shared_ptr<LaggingEvent> last_;
};

}  // namespace

std::shared_ptr<StreamBackend> make_stream(Device device, std::string name, bool is_inline) {
    return std::make_shared<DroppingStream>(device, std::move(name), is_inline);
}

}  // namespace tandem::detail::counting
