// Threads of ours, all made here (lint.threads): one that the system does not make is an error by name and not an abort,
// what one throws is logged, and whoever owns one waits for its end.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace tandem {

class Thread {
  public:
    Thread() = default;
    // Runs `body`. What it throws is an error in the log, of `name`, and ends the thread alone: a body that serves somebody
    // closes that itself. Throws SystemError: there are no more threads to be had (ulimit -u, a container's limit of
    // pids); nothing has been done then.
    template <class Body>
    Thread(const std::string& name, Body&& body) {
        try {
            thread_ = std::jthread([name, run = std::forward<Body>(body)]() mutable {
                try {
                    run();
                } catch (const std::exception& error) {
                    log_end(name, error.what());
                } catch (...) {
                    log_end(name, "an exception of unknown kind");
                }
            });
        } catch (const std::system_error& error) {
            throw_none(name, error.code().value());
        }
    }

    bool joinable() const { return thread_.joinable(); }
    void join() {  // at once where there is none
        if (thread_.joinable()) thread_.join();
    }
    void detach() { thread_.detach(); }
    std::thread::id get_id() const { return thread_.get_id(); }

  private:
    static void log_end(const std::string& name, const char* why) noexcept;
    [[noreturn]] static void throw_none(const std::string& name, int error);
    template <class Call>
    friend auto start_call(const std::string& name, Call&& call);

    std::jthread thread_;  // joined where it is destroyed or assigned to
};

// A call on a thread of its own; the future has what it returns or throws, and its destructor waits. Throws as Thread.
template <class Call>
auto start_call(const std::string& name, Call&& call) {
    try {
        return std::async(std::launch::async, std::forward<Call>(call));
    } catch (const std::system_error& error) {
        Thread::throw_none(name, error.code().value());
    }
}

// Runs work(0) here and work(1) … work(count - 1) on threads of their own, and returns when all have ended. Where the system
// makes fewer threads there are fewer, with a warning: each `work` takes what is left to do from something shared. What
// work(0) throws is thrown; the others must not.
void run_on_threads(std::size_t count, const std::string& name, const std::function<void(std::size_t)>& work);

}  // namespace tandem
