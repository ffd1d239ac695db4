#include "sync/session/session.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/error.h"
#include "common/log.h"
#include "common/stopwatch.h"
#include "common/trace.h"
#include "sync/session/modes.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kResume = "resume";

// A step at one engine: its phase in errors and traces, its category there, its deadline, and what its time counts as.
struct Step {
    const char* phase;
    const char* category;
    std::chrono::milliseconds Deadlines::*deadline;
    double PhaseTimes::*time;
};
const Step& step_of(PushStep step) {
    static constexpr std::array<Step, 6> kSteps{{
        {"pause", "sync", &Deadlines::pause, &PhaseTimes::pause},
        {"begin", "sync", &Deadlines::begin, &PhaseTimes::pause},
        {"transfer", "load", &Deadlines::transfer, nullptr},  // of all engines at once
        {"commit", "load", &Deadlines::commit, &PhaseTimes::commit},
        {kResume, "sync", &Deadlines::resume, &PhaseTimes::resume},
        {"abort", "sync", &Deadlines::abort, nullptr},
    }};
    return kSteps[static_cast<std::size_t>(step)];
}

Engines one(std::unique_ptr<engine::Engine> engine) {
    Engines engines;
    if (engine) engines.push_back(std::move(engine));
    return engines;
}

std::unique_ptr<SyncStrategy> make_strategy(const SyncContext& context) try {
    return traits(context.options.mode).make(context);
} catch (const InvalidArgument& error) {
    // All ranks plan the same, so this one fails on all of them.
    throw SyncError(fmt::format("sync set-up failed in phase plan: {}", error.what()), 0, "plan", -1);
}

}  // namespace

// --- set up

Session::Session(std::shared_ptr<comm::Communicator> world, const WeightSource& source, Engines engines,
                 const SessionOptions& options)
    : world_(std::move(world)),
      source_(source),
      engines_(std::move(engines)),
      device_(shared_device(*world_, source_)),
      options_(choose(options, device_)),
      setup_(make_setup(*world_, source_, engines_, options_)),
      tuner_(device_.type == DeviceType::cpu
                 ? std::optional<Tuner>(std::in_place, *world_, source_, setup_.plan, engines_,
                                        traits(options.mode).cost_model, !setup_.quantized.empty(), options,
                                        options_)
                 : std::nullopt),
      half_range_(setup_.plan),
      quantizer_(*world_, source_, setup_.quantized, setup_.local),
      strategy_(make_strategy(context())) {}

SyncContext Session::context() {
    return {*world_, source_, setup_.plan, setup_.local, engines_, options_, quantizer_, device_};
}

Session::Session(std::shared_ptr<comm::Communicator> world, const WeightSource& source,
                 std::unique_ptr<engine::Engine> engine, const SessionOptions& options)
    : Session(std::move(world), source, one(std::move(engine)), options) {}

// A GPU's memory that another process has mapped may be freed only after that process has closed it.
Session::~Session() {
    if (device_.type == DeviceType::cpu) return;
    for (const auto& engine : engines_) release_memory(*engine);
}

// --- a push

SyncReport Session::push(std::int64_t version) {
    state_.push(version);
    SyncReport report;
    report.version = version;
    const std::string what = fmt::format("sync of version {}", version);
    PushProtocol protocol(engines_.size());
    PushStatus status;
    Clock::time_point resumed;
    try {
        prepare_ahead(what, report);
        update_engines(protocol, version, status, report);
        resumed = Clock::now();
        throw_on_any_failure(*world_, status, what);
    } catch (const SyncError& error) {
        // An engine that could not be told to resume has the version all the same.
        const bool decided = error.phase() == kResume;
        decided ? state_.commit() : state_.abort();
        if (strategy_) strategy_->finish(version, decided);  // none: the next push makes it
        throw;
    } catch (const std::exception& error) {  // the ranks cannot agree any more
        state_.lose();
        world_->abort(fmt::format("{}: {}", what, error.what()));
        status.fail("push", fmt::format("rank {}", world_->rank()), -1, error.what());
        protocol.fail();
        while (const auto next = protocol.next()) carry_out(*next, protocol, version, status, report);
        throw;
    }
    state_.commit();
    strategy_->finish(version, true);
    strategy_->describe(report);
    report.phase_ms.finish = ms_since(resumed);
    if (!tuner_) return report;
    tuner_->pushed(report.phase_ms.prepare, report.total_ms);
    if (const auto& prediction = tuning().prediction) {
        report.predicted_ms = prediction->total_ms;
        report.predicted_prepare_ms = prediction->prepare_ms;
    }
    return report;
}

std::size_t Session::bytes() const {
    return setup_.plan.bytes();
}

Tensor Session::writable(std::size_t index) {
    const auto found = std::find(setup_.local.begin(), setup_.local.end(), static_cast<int>(index));
    enforce(found != setup_.local.end(), "the source has no tensor number {}", index);
    return strategy_->writable(static_cast<int>(found - setup_.local.begin()));
}

// To the machine as it is now.
void Session::adapt() {
    if (!tuner_ || !tuner_->look()) return;
    strategy_.reset();  // its staging, before there is other
    strategy_ = make_strategy(context());
    tuner_->attached();
}

// The engines still generate.
void Session::prepare_ahead(const std::string& what, SyncReport& report) {
    PushStatus status;
    const auto start = Clock::now();
    const trace::Scope scope("prepare", "sync");
    const Deadline deadline = Deadline::after(options_.deadlines.prepare);
    try {
        source_.ready().wait(deadline);
        half_range_.check(source_);
        if (!quantizer_.empty()) quantizer_.scan();
    } catch (const std::exception& error) {
        status.fail("prepare", fmt::format("rank {}", world_->rank()), -1, error.what());
    }
    adapt();
    if (!quantizer_.empty()) quantizer_.agree_on_scales(*world_);
    strategy_->prepare(status, deadline);
    throw_on_any_failure(*world_, status, what);
    report.phase_ms.prepare = ms_since(start);
}

// pause → begin → transfer → commit → resume, or abort. The ranks without engines take part in the transfer only,
// and in any case: a failure is told there first, not at a rendezvous of its own while engines wait.
void Session::update_engines(PushProtocol& protocol, std::int64_t version, PushStatus& status,
                             SyncReport& report) {
    const auto paused_at = Clock::now();
    manifests_.clear();
    bool transferred = false;
    while (const auto next = protocol.next()) {
        const bool before_transfer = next->step == PushStep::pause || next->step == PushStep::begin;
        if (!before_transfer && !std::exchange(transferred, true)) {
            strategy_->transfer(status, report.phase_ms, Deadline::after(options_.deadlines.transfer),
                                [&] { commit_ahead(version, status); });
        }
        carry_out(*next, protocol, version, status, report);
    }
    report.total_ms = ms_since(paused_at);
}

// What the engines will be told to commit, told already: no round trip after the last bucket. The protocol's steps
// follow as ever. A commit that overtakes another engine's failure is one whose answer was lost: withheld.
void Session::commit_ahead(std::int64_t version, PushStatus& status) {
    for (std::size_t e = 0; e < engines_.size(); ++e)
        manifests_.push_back(strategy_->ledger().manifest(version, e));
    each_engine(engines_, status, "commit", -1, [&](engine::Engine& engine, std::size_t e) {
        if (!engine.capabilities().remote) return;  // on one host an answer takes microseconds
        source_.require_unchanged();
        engine.commit_ahead(version, manifests_[e], engines_.size() == 1,
                            Deadline::after(options_.deadlines.commit));
    });
}

// A step of the protocol. One that fails is noted in `status`; when the push is being given up it is only logged.
void Session::carry_out(const PushProtocol::Next& next, PushProtocol& protocol, std::int64_t version,
                        PushStatus& status, SyncReport& report) {
    if (next.step == PushStep::transfer) return protocol.done(!status.failed);
    const std::size_t e = next.engine;
    engine::Engine& engine = *engines_[e];
    const Step& step = step_of(next.step);
    const trace::Scope scope(step.phase, step.category);
    const auto start = Clock::now();
    const auto soon = [&] { return Deadline::after(options_.deadlines.*step.deadline); };
    bool ok = true;
    try {
        switch (next.step) {
            case PushStep::pause:
                if (engine.capabilities().remote) strategy_->send_ahead(e);
                engine.pause(soon());
                report.phase_ms.pack = std::max(report.phase_ms.pack, engine.packed_ms());
                break;
            case PushStep::begin:
                engine.begin(version, soon());
                break;
            case PushStep::transfer:
                break;
            case PushStep::commit:
                source_.require_unchanged();
                engine.commit(version,
                              manifests_.empty() ? strategy_->ledger().manifest(version, e) : manifests_[e],
                              soon());
                break;
            case PushStep::resume:
                engine.resume(soon());
                break;
            case PushStep::abort:
                engine.abort(status.failed_here ? status.message : "another trainer rank failed", soon());
                break;
        }
    } catch (const std::exception& error) {
        ok = false;
        if (next.step == PushStep::abort) {
            log_warn("the engine could not be told to abort: {}", error.what());
        } else {
            status.fail(step.phase, engine.peer(), -1, error.what());
        }
    }
    const double ms = ms_since(start);
    if (step.time != nullptr) report.phase_ms.*step.time += ms;
    if (next.step == PushStep::commit) report.phase_ms.load += ms;  // which the commit is a part of
    protocol.done(ok);
}

// --- the end of a GPU's memory, which engines have mapped

// An engine that reads in place copies its weights to memory of its own first, and must be paused for it.
void Session::release_memory(engine::Engine& engine) {
    const bool in_place = traits(options_.mode).in_place;
    try {
        if (in_place) engine.pause(Deadline::after(options_.deadlines.pause));
        engine.release(Deadline::after(options_.deadlines.commit));
    } catch (const std::exception& error) {
        log_warn("the engine may still have the trainer's memory mapped: {}", error.what());
    }
    if (in_place) try_resume(engine);
}

void Session::try_resume(engine::Engine& engine) {
    try {
        engine.resume(Deadline::after(options_.deadlines.resume));
    } catch (const std::exception& error) {
        log_warn("the engine could not be resumed: {}", error.what());
    }
}

}  // namespace tandem::sync
