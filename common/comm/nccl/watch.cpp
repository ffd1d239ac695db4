#include "common/comm/nccl/watch.h"

#include <algorithm>
#include <array>

#include "common/error.h"
#include "common/log.h"

namespace tandem::comm::nccl {
namespace {

constexpr std::chrono::milliseconds kLook{20};
constexpr std::chrono::milliseconds kProbeTimeout{2000};
constexpr std::size_t kPhaseBytes = 128;

std::vector<std::shared_ptr<Handle>> alive(const std::vector<std::weak_ptr<Handle>>& handles) {
    std::vector<std::shared_ptr<Handle>> list;
    for (const auto& handle : handles) {
        if (auto held = handle.lock()) list.push_back(std::move(held));
    }
    return list;
}

}  // namespace

Watch::Watch(std::shared_ptr<Communicator> host)
    : host_(std::move(host)),
      liveness_probe_(host_->split(host_->global_ranks(), "liveness probe of NCCL")),
      thread_("that watches NCCL", [this] { run(); }) {}

Watch::~Watch() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Watch::add(const std::shared_ptr<Handle>& handle) {
    const std::lock_guard lock(mutex_);
    handles_.push_back(handle);
}

void Watch::expect(std::shared_ptr<Handle> handle, Event done, std::string phase, Deadline deadline) {
    {
        const std::lock_guard lock(mutex_);
        pending_.push_back({std::move(handle), std::move(done), std::move(phase), deadline});
    }
    changed_.notify_all();
}

void Watch::run() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
        if (pending_.empty()) {
            changed_.wait(lock);
            continue;
        }
        changed_.wait_for(lock, kLook);
        lock.unlock();
        const bool goes_on = look();
        lock.lock();
        if (!goes_on) pending_.clear();
    }
}

bool Watch::look() {
    std::vector<Pending> pending;
    {
        const std::lock_guard lock(mutex_);
        std::erase_if(pending_, [](const Pending& one) { return one.done.poll() != Poll::pending; });
        pending = pending_;
    }
    if (host_->aborted()) {
        end_handles();
        return false;
    }
    for (const Pending& one : pending) {
        const Result state = one.handle->state();
        if (failed(state)) {
            abort(fmt::format("{}: NCCL reports error {}: {}", one.phase, static_cast<int>(state),
                              one.handle->last_error()));
            return false;
        }
        if (one.deadline.passed() && one.done.poll() == Poll::pending) {
            abort(fmt::format("{}: {}", one.phase, who_is_late(one.phase)));
            return false;
        }
    }
    return true;
}

// NCCL does not say which rank is missing. Every rank that waits too comes to this barrier on the host; one
// that does not is still on its way, or gone. If all come, each tells what it waits for.
std::string Watch::who_is_late(const std::string& phase) {
    try {
        liveness_probe_->set_timeout(kProbeTimeout);
        liveness_probe_->barrier();
        std::array<char, kPhaseBytes> mine{};
        phase.copy(mine.data(), mine.size() - 1);
        std::vector<std::array<char, kPhaseBytes>> phases(static_cast<std::size_t>(liveness_probe_->size()));
        liveness_probe_->all_gather(
            {reinterpret_cast<const std::byte*>(mine.data()), kPhaseBytes},
            {reinterpret_cast<std::byte*>(phases.data()), kPhaseBytes * phases.size()});
        const bool one_call =
            std::all_of(phases.begin(), phases.end(), [&](const auto& p) { return p == mine; });
        if (one_call) return "not finished within the deadline, although all ranks have called it";
        std::string words;
        for (std::size_t rank = 0; rank < phases.size(); ++rank) {
            words += fmt::format("{}rank {} {}in {}", rank == 0 ? "" : ", ", rank, rank == 0 ? "waits " : "",
                                 phases[rank].data());
        }
        return "not finished within the deadline: the ranks are in different calls: " + words;
    } catch (const DeadlineExceeded& error) {
        return fmt::format("{} not there within the deadline", error.peer());
    } catch (const std::exception& error) {
        return error.what();
    }
}

void Watch::end_handles() noexcept {
    std::vector<std::shared_ptr<Handle>> handles;
    {
        const std::lock_guard lock(mutex_);
        handles = alive(handles_);
    }
    for (const auto& handle : handles) handle->abort();
}

void Watch::abort(const std::string& reason) noexcept {
    host_->abort(reason);
    end_handles();
}

void Watch::throw_if_aborted(const std::string& phase) const {
    if (const auto note = host_->aborted())
        throw TransportError(note->who, phase, "the job was aborted: " + note->reason);
}

Watch::Launching::Launching(Watch& watch, Stream& stream) : watch_(watch), lock_(watch.launch_order_) {
    if (watch_.last_launch_.poll() == Poll::pending) stream.wait(watch_.last_launch_);
}

void Watch::Launching::launched(const Event& event) {
    watch_.last_launch_ = event;
}

}  // namespace tandem::comm::nccl
