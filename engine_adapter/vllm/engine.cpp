#include "engine_adapter/vllm/engine.h"

#include <utility>

#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/hf_directory/staged_directory.h"
#include "engine_adapter/http_api/weight_version.h"
#include "engine_adapter/vllm/plugin_engine.h"

namespace tandem::engine {
std::vector<std::unique_ptr<Engine>> connect_vllm(const std::vector<std::string>& names,
                                                  const ConnectOptions& options, Deadline deadline) {
    enforce(names.size() == 1, "'{}' and '{}': a vLLM server is one engine, whatever its ranks",
            names.front(), names.back());
    const std::string key = key_for(names.front(), options, "VLLM_API_KEY");
    const EngineUrl url = parse_engine_url(names.front());
    VllmServer server(url.base, key);
    VllmInfo info = probe_vllm(server, deadline);
    std::vector<std::unique_ptr<Engine>> engines;
    if (info.backend == "tandem") {
        engines.push_back(
            std::make_unique<VllmPluginEngine>(std::move(server), std::move(info), url, options, deadline));
    } else {
        enforce(!url.options, "'{}': options are of the way to our plug-in, and that server runs without it",
                names.front());
        find_tensors(server, info, options, deadline);
        auto delivery = make_delivery(info.backend, server, info, key, options, deadline);
        engines.push_back(
            std::make_unique<VllmEngine>(std::move(server), std::move(info), std::move(delivery), options));
    }
    return engines;
}

VllmEngine::VllmEngine(VllmServer server, VllmInfo info, std::unique_ptr<VllmDelivery> delivery,
                       const ConnectOptions& options)
    : StagingEngine(
          {"vllm", info.tensors, number_of(info.weight_version), 2, false, delivery->device(), true},
          options.staging, options.rollback),
      server_(std::move(server)),
      info_(std::move(info)),
      delivery_(std::move(delivery)),
      stager_(delivery_->stager()),
      in_flight_(options.in_flight),
      partial_(static_cast<bool>(options.only)) {
    capabilities_.paused = info_.paused;
    capabilities_.directory = info_.model.config.string();
}

VllmEngine::~VllmEngine() {
    if (state_ != Server::paused) return;
    log_warn("{} is left paused: its push ended without resume or abort", server_.name());
}

void VllmEngine::pause(Deadline deadline) {
    if (state_ != Server::running) return;
    if (!lock_) lock_ = PushLock(staging_, server_.name(), deadline);
    learn_state(deadline);
}

// Since it was asked last, another push may have come and gone, or have died on its way.
void VllmEngine::learn_state(Deadline deadline) {
    info_.weight_version = server_.weight_version(deadline);
    capabilities_.version = number_of(info_.weight_version);
    broken_ = info_.weight_version.starts_with(kLoading);
    left_paused_ = left_paused(server_.name(), staging_) || left_paused_ || broken_;
    others_paused_ = others_.found(server_, left_paused_, deadline);
    if (broken_ && partial_) {
        throw ProtocolError(
            fmt::format("{} holds no whole version (\"{}\"): push all weights, without --only",
                        server_.name(), info_.weight_version));
    }
}

void VllmEngine::resume(Deadline deadline) {
    const PushLock until_end = std::move(lock_);
    if (state_ == Server::loading) {
        throw ProtocolError(
            fmt::format("{} is not resumed: it has not said that it loaded the weights that it was "
                        "told to; push again",
                        server_.name()));
    }
    if (state_ == Server::running) return;
    if (!others_paused_) server_.resume(deadline);
    state_ = Server::running;
    left_paused_ = false;
    stager_.drop();
}

void VllmEngine::commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) {
    delivery_->finish(server_, version, manifest, deadline);
    load_staged(version, deadline);
    const std::string says = server_.weight_version(deadline);
    require_said(server_.name(), says, version);
    state_ = Server::paused;
    committed(version, manifest);
    broken_ = false;
    info_.weight_version = says;
}

// The note is for a successor of this process, should it be killed before it has resumed the server.
void VllmEngine::load_staged(std::int64_t version, Deadline deadline) {
    if (!others_paused_) delivery_->note(server_.name(), version);
    state_ = Server::paused;
    server_.pause(in_flight_, deadline);
    // Nobody takes what follows for whole weights, nor for a pause of somebody else.
    server_.set_weight_version(fmt::format("{}{}", kLoading, version), deadline);
    held_ = {};
    deliver(version, deadline);
    server_.reset_prefix_cache(deadline);
    server_.set_weight_version(std::to_string(version), deadline);
}

void VllmEngine::deliver(std::int64_t version, Deadline deadline) {
    state_ = Server::loading;
    try {
        delivery_->deliver(server_, version, broken_, deadline);
    } catch (const Error&) {
        if (delivery_->untouched() && !broken_) state_ = Server::paused;
        throw;
    }
}

void VllmEngine::abort(const std::string& reason, Deadline deadline) {
    const PushLock until_end = std::move(lock_);
    stager_.drop();
    if (state_ == Server::running) return;
    broken_ = broken_ || state_ == Server::loading;
    state_ = Server::running;
    left_paused_ = !others_paused_;  // until it has been resumed
    if (broken_) return log_left_paused(server_.name(), reason);
    resume_as_before([&] { server_.set_weight_version(info_.weight_version, deadline); },
                     [&] {
                         if (!others_paused_) server_.resume(deadline);
                         left_paused_ = false;
                     });
}

}  // namespace tandem::engine
