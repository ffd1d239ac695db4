// The signals that end a server: SIGTERM, SIGINT, and SIGHUP and SIGQUIT unless whoever started it has them ignored (nohup).
// A thread waits for them from the beginning, so that a start that is stuck (a large load, a dead NFS) ends by them, too.
//
//   a signal      before serving()                            after it
//   the first     ends the process, as that signal does       wait() returns
//   the second    -                                           ends the process, as that signal does
#pragma once

#include <condition_variable>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>

#include "common/file_descriptor.h"
#include "common/thread.h"

namespace tandem::engine {

class EndingSignals {
  public:
    // Blocks them in this thread and in those that it starts from now on: comes before any other thread. Throws SystemError.
    EndingSignals();
    ~EndingSignals();
    EndingSignals(const EndingSignals&) = delete;
    EndingSignals& operator=(const EndingSignals&) = delete;

    // `tidy` removes what would outlive the process that a signal ends; on the thread that waits, while what is returned lives
    // and nothing serves. It must not wait for other threads.
    [[nodiscard]] std::shared_ptr<void> before_the_end(std::function<void()> tidy);

    void serving();
    int wait();  // until the first; returns which

  private:
    void watch();
    void arrived(int signal);
    [[noreturn]] void end_by(int signal) noexcept;

    sigset_t signals_{};
    FileDescriptor arrivals_, over_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> tidy_;
    bool serving_ = false;
    int first_ = 0;  // 0: none yet
    Thread thread_;
};

}  // namespace tandem::engine
