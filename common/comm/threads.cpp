// Ranks as threads of this process, and the job of one rank.
#include <exception>
#include <mutex>
#include <vector>

#include "common/comm/ipc/communicator.h"
#include "common/comm/ipc/job.h"
#include "common/comm/launch.h"
#include "common/device/counting.h"
#include "common/thread.h"

namespace tandem::comm {

std::shared_ptr<Communicator> solo() {
    if (only_counts()) return silent(0, 1);
    return ipc::make_world(ipc::Job::solo(), 0);
}

void run_threads(int world_size, const std::function<void(std::shared_ptr<Communicator>)>& body) {
    const auto job = ipc::Job::create(world_size);
    std::mutex mutex;
    std::exception_ptr cause;        // of the rank that failed on its own
    std::exception_ptr consequence;  // of a rank that only saw the job aborted
    const auto run = [&](int rank) {
        const std::string name = "rank " + std::to_string(rank);
        const auto keep = [&](const std::string& reason) {
            job->abort(name, reason);
            const std::lock_guard lock(mutex);
            auto& slot = job->abort_who() == name ? cause : consequence;
            if (!slot) slot = std::current_exception();
        };
        try {
            body(ipc::make_world(job, rank));
        } catch (const std::exception& error) {
            keep(error.what());
        } catch (...) {
            keep("an exception of unknown type");
        }
    };
    std::vector<Thread> threads;
    try {
        for (int rank = 0; rank < world_size; ++rank)
            threads.emplace_back(fmt::format("of rank {}", rank), [&run, rank] { run(rank); });
    } catch (const std::exception& error) {
        job->abort("the launcher", error.what());  // the ranks that run wait for those that do not
        throw;
    }
    threads.clear();
    if (cause) std::rethrow_exception(cause);
    if (consequence) std::rethrow_exception(consequence);
}

}  // namespace tandem::comm
