#include "sync/session/session.h"

#include "common/error.h"
#include "common/log.h"
#include "common/trace.h"
#include "sync/session/pipeline.h"
#include "sync/session/setup.h"
#include "sync/session/verify.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

class Session::Impl {
  public:
    Impl(std::shared_ptr<comm::Communicator> world, const WeightSource& source,
         std::unique_ptr<engine::Engine> engine, SessionOptions options)
        : world_(std::move(world)),
          source_(source),
          engine_(std::move(engine)),
          options_(choose(std::move(options))),
          setup_(make_setup(*world_, source_, engine_.get(), options_)),
          staging_(make_staging(*world_, setup_.plan, engine_.get(), options_)),
          gather_(setup_.plan, source_, setup_.order, staging_.area(), *world_),
          pipeline_(setup_.plan, gather_, *world_, engine_.get(), staging_.area(),
                    {options_.deadlines.load, options_.after_gather}),
          stream_(Stream::make_worker("sync")) {}

    SyncReport push(std::int64_t version) {
        state_.push(version);
        SyncReport report = empty_report(version);
        const std::string what = fmt::format("sync of version {}", version);
        try {
            open(version, what, report);
            transfer(version, what, report);
        } catch (const SyncError&) {
            state_.abort();
            throw;
        } catch (const std::exception& error) {  // the ranks cannot agree any more
            state_.lose();
            abort_and_resume(error.what());
            throw;
        }
        state_.commit();
        return report;
    }

    WeightsMatch weights_match() {
        return compare_weights(*world_, source_, setup_.plan, setup_.order, engine_.get(),
                               options_.deadlines.commit);
    }

    const VersionState& state() const { return state_; }

  private:
    SyncReport empty_report(std::int64_t version) const {
        SyncReport report;
        report.version = version;
        report.bytes = setup_.plan.bytes;
        report.buckets = static_cast<int>(setup_.plan.buckets.size());
        report.bucket_bytes = staging_.area().slot_bytes;
        report.depth = staging_.area().slots;
        report.staging_bytes = staging_.area().memory.bytes;
        return report;
    }

    // prepare → pause → begin. On failure the engine is as it was, and goes on.
    void open(std::int64_t version, const std::string& what, SyncReport& report) {
        Health health;
        const char* phase = "prepare";
        auto start = Clock::now();
        bool begun = false;
        try {
            const trace::Scope scope("prepare", "sync");
            source_.ready().wait(Deadline::after(options_.deadlines.prepare));
            gather_.prepare();
            report.phase_ms.prepare = ms_since(start);
            start = Clock::now();
            paused_at_ = start;
            if (engine_) {
                phase = "pause";
                const trace::Scope pausing("pause", "sync");
                engine_->pause(Deadline::after(options_.deadlines.pause));
                phase = "begin";
                engine_->begin(version, Deadline::after(options_.deadlines.begin));
                begun = true;
            }
        } catch (const std::exception& error) {
            health.fail(phase, engine_ && phase != std::string("prepare") ? engine_->peer() : "", -1,
                        error.what());
        }
        try {
            agree(*world_, health, what);
        } catch (const SyncError& error) {
            if (begun) try_abort(error.what());
            try_resume();
            throw;
        }
        report.phase_ms.pause = ms_since(start);
    }

    // gather ∥ load → commit → resume, or abort → resume; then every rank hears how it went.
    void transfer(std::int64_t version, const std::string& what, SyncReport& report) {
        Health health;
        run_pipeline(health, report.phase_ms);
        if (engine_) {
            try {
                if (!health.failed) commit(version, report.phase_ms);
            } catch (const std::exception& error) {
                health.fail("commit", engine_->peer(), -1, error.what());
            }
            if (health.failed) {
                try_abort(health.failed_here ? health.message : "another trainer rank failed");
                try_resume();
            } else {
                resume(health, report.phase_ms);
            }
            report.total_ms = ms_since(paused_at_);
        }
        agree(*world_, health, what);
        report.bytes_moved = report.bytes;
    }

    void run_pipeline(Health& health, PhaseTimes& times) {
        const auto start = Clock::now();
        const Event done = pipeline_.run(health, times, stream_);
        try {
            done.wait(Deadline::after(options_.deadlines.transfer));
        } catch (const std::exception& error) {
            world_->abort(
                error.what());  // ends what the stream still waits for; `health` must outlive its work
            try {
                stream_.synchronize();
            } catch (const std::exception&) {  // the same error
            }
            throw;
        }
        times.load = std::max(0.0, ms_since(start) - times.gather);
    }

    void commit(std::int64_t version, PhaseTimes& times) {
        const trace::Scope scope("commit", "load");
        const auto start = Clock::now();
        engine_->commit(version, pipeline_.manifest(version), Deadline::after(options_.deadlines.commit));
        times.load += ms_since(start);
    }

    void resume(Health& health, PhaseTimes& times) {
        const trace::Scope scope("resume", "sync");
        const auto start = Clock::now();
        try {
            engine_->resume(Deadline::after(options_.deadlines.resume));
        } catch (const std::exception& error) {
            health.fail("resume", engine_->peer(), -1, error.what());
        }
        times.resume = ms_since(start);
    }

    void abort_and_resume(const std::string& reason) {
        if (!engine_) return;
        try_abort(reason);
        try_resume();
    }
    void try_abort(const std::string& reason) {
        try {
            engine_->abort(reason, Deadline::after(options_.deadlines.abort));
        } catch (const std::exception& error) {
            spdlog::warn("the engine could not be told to abort: {}", error.what());
        }
    }
    void try_resume() {
        if (!engine_) return;
        try {
            engine_->resume(Deadline::after(options_.deadlines.resume));
        } catch (const std::exception& error) {
            spdlog::warn("the engine could not be resumed: {}", error.what());
        }
    }

    std::shared_ptr<comm::Communicator> world_;
    const WeightSource& source_;
    std::unique_ptr<engine::Engine> engine_;
    SessionOptions options_;
    Setup setup_;
    Staging staging_;
    Gather gather_;
    Pipeline pipeline_;
    VersionState state_;
    Clock::time_point paused_at_;
    Stream stream_;  // last: drained before what its work uses goes away
};

Session::Session(std::shared_ptr<comm::Communicator> world, const WeightSource& source,
                 std::unique_ptr<engine::Engine> engine, SessionOptions options)
    : impl_(std::make_unique<Impl>(std::move(world), source, std::move(engine), std::move(options))) {}
Session::~Session() = default;
SyncReport Session::push(std::int64_t version) {
    return impl_->push(version);
}
WeightsMatch Session::weights_match() {
    return impl_->weights_match();
}
State Session::state() const {
    return impl_->state().state();
}
std::int64_t Session::version() const {
    return impl_->state().version();
}

}  // namespace tandem::sync
