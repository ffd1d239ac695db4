// The launcher: starts the ranks from a thread of its own, which then watches them to their end. Children die
// with that thread (PR_SET_PDEATHSIG), so also with the process, however it ends.
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <future>
#include <mutex>
#include <optional>

#include "common/comm/ipc/job.h"
#include "common/comm/launch.h"
#include "common/deadline.h"
#include "common/error.h"
#include "common/process/child_process.h"
#include "common/thread.h"

namespace tandem::comm {
namespace {

constexpr std::chrono::milliseconds kTermToKill{2000};
constexpr std::chrono::milliseconds kAsk{50};  // how often wait() asks keep_going

// The parent's environment with `changes` over it.
std::vector<std::string> merged_environment(const std::vector<std::string>& changes) {
    const auto key = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
    std::vector<std::string> merged;
    for (char** at = environ; *at != nullptr; ++at) {
        const bool changed = std::any_of(changes.begin(), changes.end(),
                                         [&](const std::string& change) { return key(change) == key(*at); });
        if (!changed) merged.emplace_back(*at);
    }
    merged.insert(merged.end(), changes.begin(), changes.end());
    return merged;
}

std::string describe(int rank, const ChildEnd& end) {
    if (end.signal != 0)
        return fmt::format("rank {} was killed by signal {} ({})", rank, end.signal, ::strsignal(end.signal));
    return fmt::format("rank {} exited with code {}", rank, end.exit_code);
}

}  // namespace

struct RankProcesses::Impl {
    explicit Impl(const LaunchOptions& launch_options)
        : options(launch_options),
          job(ipc::Job::create(options.world_size, options.segment_bytes)),
          wake_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (wake_fd < 0) throw SystemError("eventfd", errno);
    }
    ~Impl() { ::close(wake_fd); }

    // The watching thread's part.
    void start_ranks();
    void watch();
    void look_at_ranks();
    void end_ranks(const std::string& why);
    void apply_timers();
    int milliseconds_to_timer() const;

    void ask_to_end(const std::string& why, bool at_once);

    const LaunchOptions options;
    const std::shared_ptr<ipc::Job> job;
    const int wake_fd;

    // Owned by the watching thread.
    std::vector<ChildProcess> children;
    std::vector<std::optional<ChildEnd>> ends;
    std::optional<Deadline> terminate_at;
    std::optional<Deadline> kill_at;
    LaunchResult result;

    // Shared.
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<int> pids;
    std::optional<std::string> asked;  // reason of terminate(), until the watching thread has seen it
    bool asked_at_once = false;        // skip the grace
    bool finished = false;

    Thread watcher;
};

void RankProcesses::Impl::start_ranks() {
    for (int rank = 0; rank < options.world_size; ++rank) {
        ChildOptions child;
        child.command = options.command;
        std::vector<std::string> changes = options.environment;
        changes.push_back(fmt::format("RANK={}", rank));
        changes.push_back(fmt::format("LOCAL_RANK={}", rank));
        changes.push_back(fmt::format("WORLD_SIZE={}", options.world_size));
        changes.push_back(fmt::format("LOCAL_WORLD_SIZE={}", options.world_size));
        changes.push_back(fmt::format("TANDEM_JOB_FD={}", job->fd()));
        child.environment = merged_environment(changes);
        child.descriptors = {{job->fd(), job->fd()}};
        child.group = children.empty() ? 0 : children[0].pid();
        children.emplace_back(child);
        pids.push_back(children.back().pid());
        result.ranks.push_back({.rank = rank});
    }
    ends.resize(children.size());
}

void RankProcesses::Impl::end_ranks(const std::string& why) {
    if (result.message.empty()) result.message = why;
    if (!terminate_at && !kill_at) terminate_at = Deadline::after(options.grace);
}

void RankProcesses::Impl::look_at_ranks() {
    for (std::size_t r = 0; r < children.size(); ++r) {
        if (ends[r]) continue;
        ends[r] = children[r].ended();
        if (!ends[r]) continue;
        RankExit& exit = result.ranks[r];
        exit.exit_code = ends[r]->exit_code;
        exit.signal = ends[r]->signal;
        job->slot(exit.rank).pid.store(ipc::kEnded);
        if (exit.exit_code == 0 && exit.signal == 0) continue;
        if (result.exit_code == 0) result.exit_code = exit.signal != 0 ? 1 : exit.exit_code;
        if (!result.message.empty()) continue;
        exit.first = true;
        // A rank that gave up on another one has said why before it left.
        std::string text = describe(exit.rank, *ends[r]);
        if (job->aborted()) text += fmt::format(": {} aborted: {}", job->abort_who(), job->abort_reason());
        job->abort(fmt::format("rank {}", r), text);
        end_ranks(text);
    }
}

void RankProcesses::Impl::apply_timers() {
    if (terminate_at && terminate_at->passed()) {
        ::kill(-children[0].pid(), SIGTERM);
        terminate_at.reset();
        kill_at = Deadline::after(kTermToKill);
    }
    if (kill_at && kill_at->passed()) ::kill(-children[0].pid(), SIGKILL);
}

int RankProcesses::Impl::milliseconds_to_timer() const {
    const auto& timer = terminate_at ? terminate_at : kill_at;
    if (!timer) return -1;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(timer->left()).count() + 1;
    return static_cast<int>(std::clamp<long>(left, 1, 1000));
}

void RankProcesses::Impl::watch() {
    while (std::any_of(ends.begin(), ends.end(), [](const auto& end) { return !end; })) {
        std::vector<pollfd> watched = {{wake_fd, POLLIN, 0}};
        for (std::size_t r = 0; r < children.size(); ++r) {
            if (!ends[r]) watched.push_back({children[r].pidfd(), POLLIN, 0});
        }
        ::poll(watched.data(), watched.size(), milliseconds_to_timer());
        look_at_ranks();
        {
            const std::lock_guard lock(mutex);
            if (asked) {
                job->abort("launcher", *asked);
                end_ranks(*asked);
                if (asked_at_once && terminate_at) terminate_at = Deadline::after_ms(0);
                if (result.exit_code == 0) result.exit_code = 1;
                asked.reset();
                eventfd_t drained = 0;
                ::eventfd_read(wake_fd, &drained);
            }
        }
        apply_timers();
    }
    // Processes that the ranks started and left behind. No rank is reaped yet, so the group is still theirs.
    ::kill(-children[0].pid(), SIGKILL);
    children.clear();
}

void RankProcesses::Impl::ask_to_end(const std::string& why, bool at_once) {
    const std::lock_guard lock(mutex);
    if (finished) return;
    if (!asked) asked = why;
    asked_at_once = asked_at_once || at_once;
    ::eventfd_write(wake_fd, 1);
}

RankProcesses::RankProcesses(const LaunchOptions& options) : impl_(std::make_unique<Impl>(options)) {
    std::promise<void> started;
    auto running = started.get_future();
    impl_->watcher =
        Thread("that watches the ranks", [impl = impl_.get(), started = std::move(started)]() mutable {
            try {
                impl->start_ranks();
            } catch (...) {
                impl->children.clear();
                started.set_exception(std::current_exception());
                return;
            }
            started.set_value();
            impl->watch();
            const std::lock_guard lock(impl->mutex);
            impl->finished = true;
            impl->changed.notify_all();
        });
    try {
        running.get();
    } catch (...) {
        impl_->watcher.join();
        throw;
    }
}

RankProcesses::~RankProcesses() {
    impl_->ask_to_end("the launcher was closed", true);
    impl_->watcher.join();
}

LaunchResult RankProcesses::wait(const std::function<std::string()>& keep_going) {
    bool asking = static_cast<bool>(keep_going);
    std::unique_lock lock(impl_->mutex);
    while (!impl_->changed.wait_for(lock, kAsk, [&] { return impl_->finished; })) {
        if (!asking) continue;
        lock.unlock();
        const std::string reason = keep_going();
        if (!reason.empty()) {
            impl_->ask_to_end(reason, false);
            asking = false;
        }
        lock.lock();
    }
    return impl_->result;
}

void RankProcesses::terminate(const std::string& reason) {
    impl_->ask_to_end(reason, false);
}

std::vector<int> RankProcesses::pids() const {
    const std::lock_guard lock(impl_->mutex);
    return impl_->pids;
}

}  // namespace tandem::comm
