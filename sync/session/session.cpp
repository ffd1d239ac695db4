#include "sync/session/session.h"

#include <algorithm>

#include "common/error.h"
#include "common/log.h"
#include "common/stopwatch.h"
#include "common/trace.h"
#include "sync/session/modes.h"
#include "sync/session/setup.h"
#include "sync/session/verify.h"
#include "sync/strategy/strategy.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;

Engines one(std::unique_ptr<engine::Engine> engine) {
    Engines engines;
    if (engine) engines.push_back(std::move(engine));
    return engines;
}

// make_setup reports shards on several devices, on every rank; ignored here.
Device shard_device(const WeightSource& source) {
    try {
        return device_of(source);
    } catch (const InvalidArgument&) {
        return {};
    }
}

std::unique_ptr<SyncStrategy> make_strategy(const SyncContext& context) try {
    return traits(context.options.mode).make(context);
} catch (const InvalidArgument& error) {
    // All ranks plan the same, so this one fails on all of them.
    throw SyncError(fmt::format("sync set-up failed in phase plan: {}", error.what()), 0, "plan", -1);
}

}  // namespace

class Session::Impl {
  public:
    Impl(std::shared_ptr<comm::Communicator> world, const WeightSource& source, Engines engines,
         const SessionOptions& options)
        : world_(std::move(world)),
          source_(source),
          engines_(std::move(engines)),
          device_(shard_device(source)),
          options_(choose(options, device_)),
          setup_(make_setup(*world_, source_, engines_, options_)),
          tuning_(
              setup_.quantized.empty() && device_.type == DeviceType::cpu
                  ? tune(*world_, setup_.plan, engines_, traits(options.mode).cost_model, options, options_)
                  : Tuning{}),
          quantizer_(*world_, source_, setup_.quantized, setup_.local),
          strategy_(make_strategy(
              {*world_, source_, setup_.plan, setup_.local, engines_, options_, quantizer_, device_})),
          stream_(Stream::make_worker("sync")) {}

    // A GPU's memory that another process has mapped may be freed only after that process has closed it.
    ~Impl() {
        if (device_.type == DeviceType::cpu) return;
        for (const auto& engine : engines_) release_memory(*engine);
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    SyncReport push(std::int64_t version) {
        state_.push(version);
        SyncReport report;
        report.version = version;
        const std::string what = fmt::format("sync of version {}", version);
        try {
            prepare_ahead(what, report);
            PushStatus status;
            pause_engines(version, status, report.phase_ms);
            update_engines(version, status, what, report);
        } catch (const SyncError&) {
            state_.abort();
            strategy_->finish(version, false);
            throw;
        } catch (const std::exception& error) {  // the ranks cannot agree any more
            state_.lose();
            for (const auto& engine : engines_) {
                try_abort(*engine, error.what());
                try_resume(*engine);
            }
            throw;
        }
        state_.commit();
        strategy_->finish(version, true);
        strategy_->describe(report);
        if (tuning_.prediction) {
            report.predicted_ms = tuning_.prediction->total_ms;
            report.predicted_prepare_ms = tuning_.prediction->prepare_ms;
        }
        return report;
    }

    WeightsMatch weights_match() {
        return compare_weights(*world_, source_, setup_, engines_, options_.deadlines.commit);
    }

    Tensor writable(std::size_t index) {
        const auto found = std::find(setup_.local.begin(), setup_.local.end(), static_cast<int>(index));
        enforce(found != setup_.local.end(), "the source has no tensor number {}", index);
        return strategy_->writable(static_cast<int>(found - setup_.local.begin()));
    }

    const Tuning& tuning() const { return tuning_; }
    const VersionState& state() const { return state_; }

  private:
    // The engines still generate.
    void prepare_ahead(const std::string& what, SyncReport& report) {
        PushStatus status;
        const auto start = Clock::now();
        const trace::Scope scope("prepare", "sync");
        on_stream("prepare", options_.deadlines.prepare, [&] {
            try {
                source_.ready().wait(Deadline::after(options_.deadlines.prepare));
                if (!quantizer_.empty()) quantizer_.scan();
            } catch (const std::exception& error) {
                status.fail("prepare", fmt::format("rank {}", world_->rank()), -1, error.what());
            }
            if (!quantizer_.empty()) quantizer_.agree_on_scales(*world_);
            strategy_->prepare(status);
        });
        throw_on_any_failure(*world_, status, what);
        report.phase_ms.prepare = ms_since(start);
    }

    // pause → begin. A failure here is reported in the transfer: no rendezvous of its own while engines wait.
    void pause_engines(std::int64_t version, PushStatus& status, PhaseTimes& times) {
        const trace::Scope scope("pause", "sync");
        paused_at_ = Clock::now();
        each_engine(engines_, status, "pause", -1, [&](engine::Engine& engine, std::size_t) {
            engine.pause(Deadline::after(options_.deadlines.pause));
        });
        each_engine(engines_, status, "begin", -1, [&](engine::Engine& engine, std::size_t) {
            engine.begin(version, Deadline::after(options_.deadlines.begin));
        });
        times.pause = ms_since(paused_at_);
    }

    // transfer → commit → resume, or abort → resume; then every rank hears how it went.
    void update_engines(std::int64_t version, PushStatus& status, const std::string& what,
                        SyncReport& report) {
        if (strategy_->ranks_transfer()) {
            on_stream("transfer", options_.deadlines.transfer,
                      [&] { strategy_->transfer(status, report.phase_ms); });
        } else {
            strategy_->transfer(status, report.phase_ms);
        }
        const std::size_t committed = commit_engines(version, status, report.phase_ms);
        if (status.failed) {
            // An engine rank that has not begun ignores an abort. One that has committed already stays paused
            // until a push succeeds: it must not serve what the others do not have.
            const std::string reason = status.failed_here ? status.message : "another trainer rank failed";
            for (std::size_t e = committed; e < engines_.size(); ++e) try_abort(*engines_[e], reason);
            for (std::size_t e = committed; e < engines_.size(); ++e) try_resume(*engines_[e]);
        } else {
            resume_engines(status, report.phase_ms);
        }
        report.total_ms = ms_since(paused_at_);
        throw_on_any_failure(*world_, status, what);
    }

    // Runs work on the session's stream, so that a deadline holds whatever the work waits for. It is later by
    // the ranks' own timeout, so that what waits for an engine or a rank can say for which.
    void on_stream(const char* phase, std::chrono::milliseconds timeout, std::function<void()> work) {
        stream_.enqueue(std::move(work));
        try {
            stream_.record().wait(Deadline::after(timeout + world_->timeout()));
        } catch (const std::exception& error) {
            // Ends what the stream still waits for, before what its work uses goes away.
            world_->abort(fmt::format("{}: {}", phase, error.what()));
            try {
                stream_.synchronize();
            } catch (const std::exception&) {  // the same error
            }
            throw;
        }
    }

    // Returns how many engine ranks have committed: all, or those before the first that refused.
    std::size_t commit_engines(std::int64_t version, PushStatus& status, PhaseTimes& times) {
        const trace::Scope scope("commit", "load");
        const auto start = Clock::now();
        std::size_t committed = 0;
        each_engine(engines_, status, "commit", -1, [&](engine::Engine& engine, std::size_t e) {
            engine.commit(version, strategy_->manifest(version, e),
                          Deadline::after(options_.deadlines.commit));
            ++committed;
        });
        times.load += ms_since(start);
        return committed;
    }

    void resume_engines(PushStatus& status, PhaseTimes& times) {
        const trace::Scope scope("resume", "sync");
        const auto start = Clock::now();
        each_engine(engines_, status, "resume", -1, [&](engine::Engine& engine, std::size_t) {
            engine.resume(Deadline::after(options_.deadlines.resume));
        });
        times.resume = ms_since(start);
    }

    // An engine that reads in place copies its weights to memory of its own first, and must be paused for it.
    void release_memory(engine::Engine& engine) {
        const bool in_place = traits(options_.mode).in_place;
        try {
            if (in_place) engine.pause(Deadline::after(options_.deadlines.pause));
            engine.release(Deadline::after(options_.deadlines.commit));
        } catch (const std::exception& error) {
            log_warn("the engine may still have the trainer's memory mapped: {}", error.what());
        }
        if (in_place) try_resume(engine);
    }

    void try_abort(engine::Engine& engine, const std::string& reason) {
        try {
            engine.abort(reason, Deadline::after(options_.deadlines.abort));
        } catch (const std::exception& error) {
            log_warn("the engine could not be told to abort: {}", error.what());
        }
    }
    void try_resume(engine::Engine& engine) {
        try {
            engine.resume(Deadline::after(options_.deadlines.resume));
        } catch (const std::exception& error) {
            log_warn("the engine could not be resumed: {}", error.what());
        }
    }

    std::shared_ptr<comm::Communicator> world_;
    const WeightSource& source_;
    Engines engines_;
    const Device device_;  // of this rank's shards
    SessionOptions options_;
    Setup setup_;
    Tuning tuning_;
    Quantizer quantizer_;
    std::unique_ptr<SyncStrategy> strategy_;
    VersionState state_;
    Clock::time_point paused_at_;
    Stream stream_;  // last: drained before what its work uses goes away
};

Session::Session(std::shared_ptr<comm::Communicator> world, const WeightSource& source, Engines engines,
                 SessionOptions options)
    : impl_(std::make_unique<Impl>(std::move(world), source, std::move(engines), options)) {}
Session::Session(std::shared_ptr<comm::Communicator> world, const WeightSource& source,
                 std::unique_ptr<engine::Engine> engine, SessionOptions options)
    : Session(std::move(world), source, one(std::move(engine)), std::move(options)) {}
Session::~Session() = default;
SyncReport Session::push(std::int64_t version) {
    return impl_->push(version);
}
WeightsMatch Session::weights_match() {
    return impl_->weights_match();
}
Tensor Session::writable(std::size_t index) {
    return impl_->writable(index);
}
const Tuning& Session::tuning() const {
    return impl_->tuning();
}
State Session::state() const {
    return impl_->state().state();
}
std::int64_t Session::version() const {
    return impl_->state().version();
}

}  // namespace tandem::sync
