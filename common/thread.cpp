#include "common/thread.h"

#include <vector>

#include "common/error.h"
#include "common/log.h"

namespace tandem {

void Thread::log_end(const std::string& name, const char* why) noexcept {
    try {
        log_error("thread {}: {}", name, why);
    } catch (...) {  // nothing is left to say it with
    }
}

void Thread::throw_none(const std::string& name, int error) {
    throw SystemError(
        "no thread for " + name + " (at its limit: ulimit -u, or the pids that a container may have)", error);
}

void run_on_threads(std::size_t count, const std::string& name,
                    const std::function<void(std::size_t)>& work) {
    std::vector<Thread> others;
    try {
        for (std::size_t i = 1; i < count; ++i) others.emplace_back(name, [&work, i] { work(i); });
    } catch (const SystemError& error) {
        log_warn("{} of {} threads: {}", others.size() + 1, count, error.what());
    }
    if (count > 0) work(0);
}

}  // namespace tandem
