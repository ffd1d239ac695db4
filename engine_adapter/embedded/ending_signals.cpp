#include "engine_adapter/embedded/ending_signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/error.h"
#include "common/log.h"

namespace tandem::engine {
namespace {

sigset_t ending_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    for (const int signal : {SIGHUP, SIGQUIT}) {
        struct sigaction now {};
        ::sigaction(signal, nullptr, &now);
        if (now.sa_handler != SIG_IGN) sigaddset(&signals, signal);
    }
    return signals;
}

}  // namespace

EndingSignals::EndingSignals() : signals_(ending_signals()) {
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    arrivals_.reset(::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!arrivals_) throw SystemError("signalfd", errno);
    over_.reset(::eventfd(0, EFD_CLOEXEC));
    if (!over_) throw SystemError("eventfd", errno);
    thread_ = Thread("that waits for signals", [this] { watch(); });
}

EndingSignals::~EndingSignals() {
    ::eventfd_write(over_.get(), 1);
    thread_.join();
}

void EndingSignals::watch() {
    pollfd ready[] = {{arrivals_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}};
    while (ready[1].revents == 0) {
        if (::poll(ready, 2, -1) < 0 && errno != EINTR) throw SystemError("poll", errno);
        signalfd_siginfo signal{};
        if (::read(arrivals_.get(), &signal, sizeof signal) == sizeof signal)
            arrived(static_cast<int>(signal.ssi_signo));
    }
}

void EndingSignals::arrived(int signal) {
    const std::lock_guard lock(mutex_);
    if (!serving_ || first_ != 0) end_by(signal);
    first_ = signal;
    changed_.notify_all();
}

// Says nothing: whoever reads what this process says may be what it is stuck at.
void EndingSignals::end_by(int signal) noexcept {
    try {
        if (tidy_) tidy_();
    } catch (const std::exception&) {
    }
    std::signal(signal, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    ::kill(::getpid(), signal);
    ::_exit(128 + signal);  // process 1 of a container has no default actions
}

std::shared_ptr<void> EndingSignals::before_the_end(std::function<void()> tidy) {
    const std::lock_guard lock(mutex_);
    tidy_ = std::move(tidy);
    return {this, [](EndingSignals* self) {
                const std::lock_guard forget(self->mutex_);
                self->tidy_ = nullptr;
            }};
}

void EndingSignals::serving() {
    const std::lock_guard lock(mutex_);
    serving_ = true;
}

int EndingSignals::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return first_ != 0; });
    return first_;
}

}  // namespace tandem::engine
