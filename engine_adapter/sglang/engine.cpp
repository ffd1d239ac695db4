#include "engine_adapter/sglang/engine.h"

#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/http/access.h"
#include "common/log.h"
#include "engine_adapter/hf_directory/staged_directory.h"
#include "engine_adapter/http_api/weight_version.h"
#include "engine_adapter/sglang/payload.h"
#include "engine_adapter/sglang/plugin_engine.h"

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
    const EngineUrl url = parse_engine_url(names.front());
    SglangServer server(url.base,
                        options.key.empty() ? http::key_from_environment("SGLANG_API_KEY") : options.key);
    SglangInfo info = probe_sglang(server, deadline);
    if (info.plugin && !server.name().starts_with(kByTensors)) {
        engines.push_back(
            std::make_unique<SglangPluginEngine>(std::move(server), std::move(info), url, options, deadline));
        return engines;
    }
    enforce(!url.options, "'{}': options are of the way to our plug-in, and that server runs without it",
            names.front());
    find_tensors(server, info);
    engines.push_back(std::make_unique<SglangEngine>(std::move(server), std::move(info), options));
    return engines;
}

// What is given as tensors is not shared: PyTorch counts its readers in the first bytes of such a file.
SglangEngine::SglangEngine(SglangServer server, SglangInfo info, const ConnectOptions& options)
    : StagingEngine({"sglang", info.tensors, number_of(info.weight_version), 2, false, {}, true},
                    options.staging, options.rollback),
      server_(std::move(server)),
      info_(std::move(info)),
      by_tensors_(server_.name().starts_with(kByTensors)),
      stager_(info_.tensors, info_.model, options.staging, server_.name(),
              by_tensors_ ? nullptr : options.share),
      serving_(server_, options.in_flight, [this](bool paused, Deadline) {
          if (paused) staged_->note(one_name(server_));  // else it goes with what is staged
      }) {
    if (!by_tensors_) return;
    enforce(serving_.ends_requests(),
            "{} is given tensors in several steps, between which it must not generate: end its requests "
            "(--abort-running), or use sglang://",
            peer());
    enforce(info_.replicas == 1, "{} has {} data-parallel replicas, which take no tensors: use sglang://",
            peer(), info_.replicas);
}

// Since it was asked last, another push may have come and gone, or have died on its way.
void SglangEngine::pause(Deadline deadline) {
    if (serving_.touched()) return;
    if (!lock_) lock_ = PushLock(staging_, one_name(server_), deadline);
    info_.weight_version = server_.weight_version(deadline);
    capabilities_.version = number_of(info_.weight_version);
    serving_.find(info_.weight_version, left_paused(one_name(server_), staging_), false, deadline);
}

void SglangEngine::resume(Deadline deadline) {
    const PushLock until_end = std::move(lock_);
    const bool touched = serving_.touched();
    serving_.resume(deadline);
    if (touched) stager_.drop();
}

void SglangEngine::commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) {
    const StagedDirectory& staged = stager_.finish(version, manifest, deadline);
    staged_ = &staged;
    held_ = {};
    if (by_tensors_) bucket_.emplace(staged, info_.tensors);
    serving_.load(
        version, [&] { return told_to_load(staged, version, deadline); }, deadline);
    bucket_.reset();
    committed(version, manifest);
}

// Of a paused server: it empties its cache when it is told.
SglangAnswer SglangEngine::told_to_load(const StagedDirectory& staged, std::int64_t version,
                                        Deadline deadline) {
    if (serving_.ends_requests()) {
        SglangAnswer answer =
            by_tensors_ ? given_tensors(deadline) : server_.update_from_disk(staged.path(), deadline);
        if (answer.update == SglangUpdate::done) answer.update = SglangUpdate::cached;
        return answer;
    }
    return serving_.once_requests_end(
        [&] { return server_.update_from_disk(staged.path(), std::to_string(version), deadline); });
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
    bucket_.reset();
    stager_.drop();
    serving_.abort(reason, deadline);
}

}  // namespace tandem::engine
