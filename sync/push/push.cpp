#include "sync/push/push.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/log.h"
#include "common/stopwatch.h"
#include "common/thread.h"
#include "sync/push/directory_source.h"
#include "sync/session/setup.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;

// To what is only asked for evidence: a server that is busy is pushed to all the same.
constexpr std::chrono::milliseconds kLongestAnswer{10'000};

// Adds up what all servers have taken.
class Counter {
  public:
    explicit Counter(const PushProgress& progress) : progress_(progress) {}
    void add(std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        bytes_ += bytes;
        if (progress_) progress_(bytes_);
    }

  private:
    const PushProgress& progress_;
    std::mutex mutex_;
    std::size_t bytes_ = 0;
};

void end_if_stopped(const PushOptions& options) {
    if (options.stop && options.stop())
        throw Error("interrupted before its commit: nothing was changed there");
}

SessionOptions session_options(const PushOptions& options, std::function<void(int, Span)> before_load) {
    SessionOptions session;
    session.bucket_bytes = std::size_t{16} << 20;  // chosen ones would cost a calibration for each server
    session.depth = 2;
    session.deadlines.transfer = session.deadlines.commit = session.deadlines.pause = options.deadline;
    session.before_load = std::move(before_load);
    return session;
}

// One server's answers to the probe. What it should say is known before anything of it is changed.
class ServerProbe {
  public:
    ServerProbe(const Probe& probe, const std::string& url, DType dtype)
        : probe_(probe), url_(url), expected_(probe.expected(dtype)), report_{dtype, {}, {}} {}

    // One that is paused, or has no weights yet, does not answer: that is no reason not to push.
    void ask_before(std::chrono::milliseconds deadline) {
        constexpr std::chrono::milliseconds kLongest{10'000};
        try {
            report_.before = ask(std::min(deadline, kLongest));
        } catch (const Error&) {
        }
    }
    void ask_after(std::chrono::milliseconds deadline) { report_.after = ask(deadline); }
    const ProbeReport& report() const { return report_; }

  private:
    Apart ask(std::chrono::milliseconds deadline) const {
        return apart(probe_.ask(url_, Deadline::after(deadline)), expected_);
    }

    const Probe& probe_;
    const std::string& url_;
    std::vector<Said> expected_;
    ProbeReport report_;
};

// That is no reason to refuse: what the server computes in is its user's choice.
void tell_dtypes(const DirectorySource& source, const engine::Engine& engine, const std::string& url) {
    std::vector<engine::TensorInfo> ours;
    for (const NamedTensor& tensor : source.tensors())
        ours.push_back({tensor.name, tensor.tensor.shape(), tensor.tensor.dtype()});
    const DType from = engine::main_dtype(ours), to = engine::main_dtype(engine.capabilities().tensors);
    if (from != to)
        log_info("{}: the weights are cast from {} to {}, which it holds", url, dtype_name(from),
                 dtype_name(to));
}

void push_weights(const PushOptions& options, std::unique_ptr<engine::Engine> engine, std::int64_t version,
                  Counter& counter, ServerOutcome& outcome) {
    const bool stages = engine->capabilities().stages;
    const auto world = comm::solo();
    const DirectorySource source(options.weights, world);
    tell_dtypes(source, *engine, outcome.url);
    outcome.compared = require_same_architecture(source, *engine);
    const auto start = Clock::now();
    std::atomic<bool> begun = false;
    Session session(world, source, std::move(engine), session_options(options, [&](int, Span memory) {
                        // One that does not stage loses its old weights to the first bucket: it gets the rest too.
                        if (stages || !begun.exchange(true)) end_if_stopped(options);
                        counter.add(memory.bytes);
                    }));
    if (!options.dry_run) {
        const SyncReport report = session.push(version);
        outcome.paused_ms = stages ? report.phase_ms.commit + report.phase_ms.resume : report.total_ms;
        outcome.prepared_ms = ms_since(start) - outcome.paused_ms;
    }
    outcome.version = version;
    outcome.whole = true;
}

void push_to(const PushOptions& options, const Connect& connect, Counter& counter, ServerOutcome& outcome) {
    std::unique_ptr<engine::Engine> engine = connect(outcome.url, Deadline::after(options.deadline));
    const engine::Capabilities& capabilities = engine->capabilities();
    outcome.kind = capabilities.engine;
    outcome.before = outcome.version = capabilities.version;
    for (const engine::TensorInfo& tensor : capabilities.tensors)
        outcome.bytes += engine::tensor_bytes(tensor);
    const std::int64_t newest = std::max(outcome.before, capabilities.newest);
    enforce(options.version > 0 || newest < std::numeric_limits<std::int64_t>::max(),
            "its version {} has none after it: restart the server", newest);
    // Said before anything is staged, and by a dry run too.
    enforce(options.version == 0 || options.version > newest || options.rollback,
            "version {} is not above {}, which it has had: push a higher one, or leave --version out",
            options.version, newest);
    const std::int64_t version = options.version > 0 ? options.version : newest + 1;

    std::optional<ServerProbe> probe;
    if (options.probe) {
        probe.emplace(*options.probe, outcome.url, engine::main_dtype(capabilities.tensors));
        probe->ask_before(options.deadline);
        outcome.probe = probe->report();
    }
    const bool checks = capabilities.tells_checksums();
    std::optional<ChangeProbe> change;
    if (options.ask && !probe && !checks && !capabilities.paused && !options.dry_run) {
        change.emplace(options.ask, outcome.url, capabilities.tensors);
        change->before(Deadline::after(std::min(options.deadline, kLongestAnswer)));
    }
    push_weights(options, std::move(engine), version, counter, outcome);
    if (options.dry_run) return;
    if (checks) outcome.known = Known::by_checksum;
    if (change && change->changed(Deadline::after(std::min(options.deadline, kLongestAnswer))))
        outcome.known = Known::by_probe;
    if (!probe) return;

    outcome.whole = false;
    probe->ask_after(options.deadline);
    outcome.probe = probe->report();
    if (!outcome.probe->holds()) {
        throw Error(fmt::format("it says that it has version {}, but it does not answer as those weights do",
                                version));
    }
    outcome.whole = true;
    outcome.known = Known::verified;
}

}  // namespace

std::vector<ServerOutcome> push_directory(PushOptions options, const Connect& connect,
                                          const PushProgress& progress) {
    if (!options.weights) options.weights = std::make_shared<DirectoryWeights>(options.model, options.only);
    std::vector<ServerOutcome> outcomes(options.servers.size());
    Counter counter(progress);
    std::vector<Thread> threads;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        outcomes[i].url = options.servers[i];
        try {
            threads.emplace_back("for " + outcomes[i].url, [&, i] {
                try {
                    push_to(options, connect, counter, outcomes[i]);
                } catch (const std::exception& error) {
                    outcomes[i].error = error.what();
                }
            });
        } catch (const SystemError& error) {
            outcomes[i].error = error.what();
        }
    }
    threads.clear();
    return outcomes;
}

}  // namespace tandem::sync
