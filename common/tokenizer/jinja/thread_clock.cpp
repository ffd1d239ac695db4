#include "common/tokenizer/jinja/thread_clock.h"

#include <ctime>

#include "common/error.h"

namespace tandem::tokenizer::jinja {
namespace {

double thread_seconds() {
    std::timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

ThreadClock::ThreadClock(double seconds) : seconds_(seconds), ends_(thread_seconds() + seconds) {}

void ThreadClock::look() const {
    if (thread_seconds() > ends_) throw Error(fmt::format("more than {} s of processor time", seconds_));
}

}  // namespace tandem::tokenizer::jinja
