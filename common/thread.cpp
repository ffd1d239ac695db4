#include "common/thread.h"

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

}  // namespace tandem
