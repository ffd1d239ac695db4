#include "common/comm/nccl/handle.h"

#include <algorithm>
#include <thread>

#include "common/error.h"
#include "common/log.h"

namespace tandem::comm::nccl {
namespace {

// NCCL launches within some ten microseconds, and a sleep takes longer than it says: the thread that waits
// here is the one that launches the computation.
constexpr std::chrono::microseconds kSpin{100};
constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};
constexpr std::chrono::seconds kFinalize{5};

}  // namespace

void Handle::fail(const Api& api, Result result, const std::string& phase, const std::string& detail) {
    const std::string text =
        fmt::format("NCCL: {}{}{}", api.get_error_string(result), detail.empty() ? "" : "; ", detail);
    if (result == Result::remote_error || result == Result::system_error)
        throw TransportError("a peer", phase, text);
    throw CudaError(phase, fmt::format("ncclResult {}", static_cast<int>(result)), text);
}

Handle::Handle(const Api& api, const UniqueId& id, int rank, int size, const std::string& name,
               Deadline deadline, const Check& check)
    : api_(api), name_(name) {
    const std::string phase = fmt::format("init of '{}'", name);
    Config config;
    config.blocking = 0;
    const Result result = api_.comm_init_rank_config(&comm_, size, id, rank, &config);
    try {
        settle(result, phase, deadline, check);
    } catch (...) {
        abort();  // no destructor will
        throw;
    }
}

Handle::~Handle() {
    if (aborted()) return;
    try {
        Result result = Result::success;
        {
            const std::lock_guard lock(mutex_);
            deregister();
            result = api_.comm_finalize(comm_);
        }
        settle(result, fmt::format("end of '{}'", name_), Deadline::after(kFinalize));
        const std::lock_guard lock(mutex_);
        api_.comm_destroy(comm_);
    } catch (const std::exception& error) {
        log_warn("{}", error.what());
        abort();
    }
}

void Handle::settle(Result result, const std::string& phase, Deadline deadline, const Check& check) {
    const auto spin_until = Deadline::Clock::now() + kSpin;
    for (auto pause = kFirstPause;;) {
        if (failed(result)) fail(api_, result, phase, last_error());
        {
            const std::lock_guard lock(mutex_);
            if (aborted()) throw TransportError("this rank", phase, "the communicator was aborted");
            Result state = Result::success;
            const Result asked = api_.comm_get_async_error(comm_, &state);
            result = asked == Result::success ? state : asked;
        }
        if (result == Result::success) return;
        if (result != Result::in_progress) continue;
        if (check) check();
        if (deadline.passed())
            throw DeadlineExceeded("a peer", phase, "NCCL is still in progress at the deadline");
        if (Deadline::Clock::now() < spin_until) continue;
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.left()));
        pause = std::min(2 * pause, kLongestPause);
    }
}

void Handle::launch(const std::string& phase, Deadline deadline,
                    const std::function<Result(const Api&, Comm)>& calls, const Check& check) {
    Result result = Result::success;
    {
        const std::lock_guard lock(mutex_);
        if (aborted()) throw TransportError("this rank", phase, "the communicator was aborted");
        const Result begun = api_.group_start();
        if (begun != Result::success) fail(api_, begun, phase, "");
        const Result called = calls(api_, comm_);
        const Result ended = api_.group_end();  // also after a refused call: the group must be closed
        result = failed(called) ? called : ended;
    }
    settle(result, phase, deadline, check);
}

Result Handle::state() {
    const std::lock_guard lock(mutex_);
    if (aborted()) return Result::success;
    Result state = Result::success;
    const Result asked = api_.comm_get_async_error(comm_, &state);
    return asked == Result::success ? state : asked;
}

std::string Handle::last_error() const {
    const std::lock_guard lock(mutex_);
    const char* text = aborted() ? nullptr : api_.get_last_error(comm_);
    return text == nullptr ? "" : text;
}

void Handle::register_memory(Span memory) {
    if (api_.comm_register == nullptr || api_.comm_deregister == nullptr || memory.bytes == 0) return;
    const std::lock_guard lock(mutex_);
    if (aborted() || registered_.count(memory.data) != 0) return;
    void* registration = nullptr;
    const Result result = api_.comm_register(comm_, memory.data, memory.bytes, &registration);
    registered_[memory.data] = result == Result::success ? registration : nullptr;
    if (result != Result::success) {
        log_debug("NCCL does not register {} bytes on '{}': {}", memory.bytes, name_,
                  api_.get_error_string(result));
    }
}

void Handle::deregister() {
    for (const auto& [memory, registration] : registered_) {
        if (registration != nullptr) api_.comm_deregister(comm_, registration);
    }
    registered_.clear();
}

void Handle::deregister_all() {
    const std::lock_guard lock(mutex_);
    if (!aborted()) deregister();
}

void Handle::abort() noexcept {
    if (aborted_.exchange(true)) return;
    const std::lock_guard lock(mutex_);
    if (comm_ != nullptr) api_.comm_abort(comm_);
}

}  // namespace tandem::comm::nccl
