#include "engine_adapter/sglang/engine.h"

#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/http/access.h"
#include "common/log.h"
#include "engine_adapter/hf_directory/staged_directory.h"
#include "engine_adapter/http_api/weight_version.h"
#include "engine_adapter/sglang/payload.h"

namespace tandem::engine {
namespace {

constexpr std::string_view kByTensors = "sglang+tensor://";

// What locks and notes call a server, whichever way it is given its weights.
std::string one_name(const SglangServer& server) {
    return "sglang://" + server.name().substr(server.name().find("://") + 3);
}

}  // namespace

std::vector<std::unique_ptr<Engine>> connect_sglang(const std::vector<std::string>& names,
                                                    const ConnectOptions& options, Deadline deadline) {
    enforce(names.size() == 1, "'{}' and '{}': an SGLang server is one engine, whatever its ranks",
            names.front(), names.back());
    std::vector<std::unique_ptr<Engine>> engines;
    SglangServer server(names.front(),
                        options.key.empty() ? http::key_from_environment("SGLANG_API_KEY") : options.key);
    SglangInfo info = probe_sglang(server, deadline);
    engines.push_back(std::make_unique<SglangEngine>(std::move(server), std::move(info), options));
    return engines;
}

// What is given as tensors is not shared: PyTorch counts its readers in the first bytes of such a file.
SglangEngine::SglangEngine(SglangServer server, SglangInfo info, const ConnectOptions& options)
    : StagingEngine({"sglang", info.tensors, number_of(info.weight_version), 2, false, {}, true},
                    options.staging, options.rollback),
      server_(std::move(server)),
      info_(std::move(info)),
      in_flight_(options.in_flight),
      by_tensors_(server_.name().starts_with(kByTensors)),
      stager_(info_.tensors, info_.model, options.staging, server_.name(),
              by_tensors_ ? nullptr : options.share) {
    if (!by_tensors_) return;
    enforce(ends_requests(),
            "{} is given tensors in several steps, between which it must not generate: end its requests "
            "(--abort-running), or use sglang://",
            peer());
    enforce(info_.replicas == 1, "{} has {} data-parallel replicas, which take no tensors: use sglang://",
            peer(), info_.replicas);
}

SglangEngine::~SglangEngine() {
    if (state_ != Server::paused) return;
    log_warn("{} is left paused: its push ended without resume or abort", server_.name());
}

// Since it was asked last, another push may have come and gone, or have died on its way.
void SglangEngine::pause(Deadline deadline) {
    if (state_ != Server::as_found) return;
    if (!lock_) lock_ = PushLock(staging_, one_name(server_), deadline);
    info_.weight_version = server_.weight_version(deadline);
    capabilities_.version = number_of(info_.weight_version);
    broken_ = info_.weight_version.starts_with(kLoading);
    left_paused_ = left_paused(one_name(server_), staging_) || left_paused_ || broken_;
    others_paused_ = !server_.takes_requests(deadline).value_or(true) && !left_paused_;
}

void SglangEngine::resume(Deadline deadline) {
    const PushLock until_end = std::move(lock_);
    if (state_ == Server::loading || state_ == Server::broken) {
        throw ProtocolError(fmt::format(
            "{} is not resumed: it has not said that it loaded the weights that it was told to; push again",
            server_.name()));
    }
    if (state_ == Server::as_found) return;
    if (left_paused_) server_.resume(deadline);
    left_paused_ = false;
    state_ = Server::as_found;
    stager_.drop();
}

void SglangEngine::commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) {
    const StagedDirectory& staged = stager_.finish(version, manifest, deadline);
    loading_ = version;
    if (by_tensors_) bucket_.emplace(staged, info_.tensors);
    if (ends_requests()) end_requests(staged, deadline);
    load_staged(staged, deadline);
    bucket_.reset();
    const std::string says = server_.weight_version(deadline);
    require_said(server_.name(), says, version);
    state_ = Server::paused;
    committed(version, manifest);
    broken_ = false;
    info_.weight_version = says;
}

// The note is for a successor of this process, should it be killed before it has resumed the server.
void SglangEngine::end_requests(const StagedDirectory& staged, Deadline deadline) {
    if (!others_paused_) staged.note(one_name(server_));
    left_paused_ = !others_paused_;
    state_ = Server::paused;
    server_.pause(deadline);
    // Nobody takes what follows for whole weights, nor for a pause of somebody else.
    server_.set_weight_version(fmt::format("{}{}", kLoading, loading_), deadline);
}

void SglangEngine::load_staged(const StagedDirectory& staged, Deadline deadline) {
    held_ = {};
    const Server before = std::exchange(state_, Server::loading);
    const SglangAnswer answer = told_to_load(staged, deadline);
    if (answer.update == SglangUpdate::refused || answer.update == SglangUpdate::unknown) {
        state_ = answer.update == SglangUpdate::refused ? before : Server::broken;
        throw TransportError(server_.name(), answer.phase, answer.why);
    }
    // A cache that could not be emptied in the same step has requests on it that the server did not wait for: they end.
    if (answer.update == SglangUpdate::cached) end_requests(staged, deadline);
    state_ = Server::loading;
    if (answer.update == SglangUpdate::done && !ends_requests()) return;
    server_.flush_cache(deadline);
    server_.set_weight_version(std::to_string(loading_), deadline);
}

SglangAnswer SglangEngine::told_to_load(const StagedDirectory& staged, Deadline deadline) {
    if (by_tensors_) return given_tensors(deadline);
    if (ends_requests()) return server_.update_from_disk(staged.path(), deadline);
    try {
        return server_.update_from_disk(staged.path(), std::to_string(loading_), deadline);
    } catch (const DeadlineExceeded& error) {
        if (left_paused_) throw;
        throw DeadlineExceeded(server_.name(), error.phase(),
                               "its requests had not ended before the deadline; wait longer (--deadline), or "
                               "end them (--abort-running)",
                               true);
    }
}

SglangAnswer SglangEngine::given_tensors(Deadline deadline) {
    if (info_.sessions) server_.begin_update(deadline);
    const SglangAnswer answer =
        server_.update_from_tensors(tensor_update_body(bucket_->pickle(), info_.ranks), deadline);
    const bool known = answer.update == SglangUpdate::done || answer.update == SglangUpdate::refused;
    if (info_.sessions && known) server_.end_update(deadline);
    return answer;
}

void SglangEngine::abort(const std::string& reason, Deadline deadline) {
    const PushLock until_end = std::move(lock_);
    const Server state = std::exchange(state_, Server::as_found);
    bucket_.reset();
    stager_.drop();
    if (state == Server::broken || (state == Server::loading && (left_paused_ || ends_requests()))) {
        hold_back(reason, deadline);
    } else if (state == Server::loading) {
        log_warn(
            "{} has not said that it loaded version {} ({}): it serves that or the one from before, as "
            "its weight version says",
            server_.name(), loading_, reason);
    } else {
        resume_as_before(
            [&] {
                if (state == Server::paused) server_.set_weight_version(info_.weight_version, deadline);
            },
            [&] {
                if (left_paused_ && !broken_) server_.resume(deadline);
                left_paused_ = broken_;
            });
    }
}

// What it holds is in nobody's hands: it shall answer nothing until the next push.
void SglangEngine::hold_back(const std::string& reason, Deadline deadline) {
    log_left_paused(server_.name(), reason);
    broken_ = true;
    if (ends_requests()) return;  // paused, and its weight version says so
    if (!left_paused_ && !others_paused_) server_.pause(deadline);
    left_paused_ = !others_paused_;
    server_.set_weight_version(fmt::format("{}{}", kLoading, loading_), deadline);
}

}  // namespace tandem::engine
