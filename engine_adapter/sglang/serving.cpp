#include "engine_adapter/sglang/serving.h"

#include <utility>

#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/http_api/weight_version.h"

namespace tandem::engine {

SglangServing::SglangServing(SglangServer& server, InFlight in_flight, Note note)
    : server_(server), in_flight_(in_flight), note_(std::move(note)) {}

SglangServing::~SglangServing() {
    if (state_ != State::paused) return;
    log_warn("{} is left paused: its push ended without resume or abort", server_.name());
}

void SglangServing::find(const std::string& weight_version, bool noted, bool torn, Deadline deadline) {
    found_ = weight_version;
    torn_ = torn;
    broken_ = weight_version.starts_with(kLoading) || torn;
    left_paused_ = noted || left_paused_ || broken_;
    others_paused_ = !server_.takes_requests(deadline).value_or(true) && !left_paused_;
}

void SglangServing::load(std::int64_t version, const std::function<SglangAnswer()>& load, Deadline deadline) {
    loading_ = version;
    if (pauses()) pause(deadline);
    const State before = std::exchange(state_, State::loading);
    const SglangAnswer answer = load();
    if (answer.update == SglangUpdate::refused || answer.update == SglangUpdate::unknown) {
        state_ = answer.update == SglangUpdate::refused ? before : State::broken;
        throw TransportError(server_.name(), answer.phase, answer.why);
    }
    if (answer.update == SglangUpdate::cached) {
        // Could it not empty its cache although it was told to, then there are requests that it did not wait for: they end.
        if (before != State::paused) pause(deadline);
        state_ = State::loading;
        server_.flush_cache(deadline);
        server_.set_weight_version(std::to_string(version), deadline);
    }
    found_ = server_.weight_version(deadline);
    require_said(server_.name(), found_, version);
    state_ = State::paused;
    broken_ = torn_ = false;
}

void SglangServing::pause(Deadline deadline) {
    if (!others_paused_) note_(true, deadline);
    left_paused_ = !others_paused_;
    state_ = State::paused;
    server_.pause(in_flight_ == InFlight::keep && !torn_ ? InFlight::keep : InFlight::abort, deadline);
    // Nobody takes what follows for whole weights, nor for a pause of somebody else.
    server_.set_weight_version(fmt::format("{}{}", kLoading, loading_), deadline);
}

SglangAnswer SglangServing::once_requests_end(const std::function<SglangAnswer()>& update) const {
    try {
        return update();
    } catch (const DeadlineExceeded& error) {
        if (left_paused_) throw;
        throw DeadlineExceeded(server_.name(), error.phase(),
                               "its requests had not ended before the deadline; wait longer (--deadline), or "
                               "end them (--abort-running)",
                               true);
    }
}

void SglangServing::resume(Deadline deadline) {
    if (state_ == State::loading || state_ == State::broken) {
        throw ProtocolError(fmt::format(
            "{} is not resumed: it has not said that it loaded the weights that it was told to; push again",
            server_.name()));
    }
    if (state_ == State::as_found) return;
    if (left_paused_) server_.resume(deadline);
    state_ = State::as_found;
    if (std::exchange(left_paused_, false)) note_(false, deadline);
}

void SglangServing::abort(const std::string& reason, Deadline deadline) {
    const State state = std::exchange(state_, State::as_found);
    if (state == State::broken || (state == State::loading && (left_paused_ || pauses()))) {
        hold_back(reason, deadline);
    } else if (state == State::loading) {
        log_warn(
            "{} has not said that it loaded version {} ({}): it serves that or the one from before, as "
            "its weight version says",
            server_.name(), loading_, reason);
    } else {
        resume_as_before(
            [&] {
                if (state == State::paused) server_.set_weight_version(found_, deadline);
            },
            [&] {
                if (left_paused_ && !broken_) server_.resume(deadline);
                if (std::exchange(left_paused_, broken_) && !broken_) note_(false, deadline);
            });
    }
}

// What it holds is in nobody's hands: it shall answer nothing until the next push.
void SglangServing::hold_back(const std::string& reason, Deadline deadline) {
    log_left_paused(server_.name(), reason);
    broken_ = true;
    if (pauses()) return;  // paused, and its weight version says so
    if (!left_paused_ && !others_paused_) server_.pause(InFlight::abort, deadline);
    left_paused_ = !others_paused_;
    server_.set_weight_version(fmt::format("{}{}", kLoading, loading_), deadline);
}

}  // namespace tandem::engine
