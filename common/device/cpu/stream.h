// Inline and worker streams.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "common/device/stream_backend.h"
#include "common/thread.h"

namespace tandem::detail {

std::shared_ptr<StreamBackend> make_inline_stream();
std::shared_ptr<StreamBackend> make_worker_stream(std::string name);

class WorkerStream : public StreamBackend {
  public:
    explicit WorkerStream(std::string name);
    ~WorkerStream() override;
    WorkerStream(const WorkerStream&) = delete;
    WorkerStream& operator=(const WorkerStream&) = delete;

    Device device() const override { return {}; }
    bool is_inline() const final { return false; }
    const std::string& name() const final { return name_; }
    void enqueue(std::function<void()> work) override;
    void call_host(std::function<void()> work) override;
    std::shared_ptr<EventState> record() override;
    void wait(std::shared_ptr<EventState> event) override;
    void synchronize() override;
    void copy(ConstSpan from, Span to) override;
    void fill_zero(Span memory) override;

    bool on_worker() const { return std::this_thread::get_id() == worker_.get_id(); }

  protected:
    // Done in order; unless `always`, not when an error is pending.
    void push(std::function<void()> work, bool always = false);

  private:
    struct Item {
        std::function<void()> work;
        bool always;
    };
    void run();
    std::exception_ptr sticky();

    std::string name_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Item> queue_;
    bool busy_ = false;
    bool closing_ = false;
    std::exception_ptr error_;  // first failure; sticky
    Thread worker_;
};

}  // namespace tandem::detail
