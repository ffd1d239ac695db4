#include "engine_adapter/sglang/engine.h"

#include <utility>

#include "common/error.h"
#include "common/http/access.h"
#include "common/log.h"
#include "engine_adapter/checkpoint_engine/socket_folder.h"
#include "engine_adapter/hf_directory/staged_directory.h"
#include "engine_adapter/http_api/versions.h"
#include "engine_adapter/http_api/weight_version.h"
#include "engine_adapter/sglang/plugin_engine.h"

namespace tandem::engine {
namespace {

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
    const std::string key = key_for(names.front(), options, "SGLANG_API_KEY");
    checkpoint_engine::free_waiting_workers(
        url.base);  // before the server is asked: its answers wait for them
    SglangServer server(url.base, key);
    SglangInfo info = probe_sglang(server, deadline);
    // Before, it cannot empty its cache while requests stand in its queue.
    enforce(options.in_flight != InFlight::keep || version_numbers(info.version) >= std::array{0, 5, 23},
            "{}: SGLang {} cannot keep its requests through a change of weights; 0.5.23 can", server.name(),
            info.version);
    if (info.plugin && server.name().starts_with("sglang://")) {
        engines.push_back(
            std::make_unique<SglangPluginEngine>(std::move(server), std::move(info), url, options, deadline));
        return engines;
    }
    enforce(!url.options, "'{}': options are of the way to our plug-in, and that server runs without it",
            names.front());
    find_tensors(server, info, options.pushed);
    auto delivery = make_sglang_delivery(server, info, key, options);
    engines.push_back(
        std::make_unique<SglangEngine>(std::move(server), std::move(info), std::move(delivery), options));
    return engines;
}

SglangEngine::SglangEngine(SglangServer server, SglangInfo info, std::unique_ptr<SglangDelivery> delivery,
                           const ConnectOptions& options)
    : StagingEngine(
          {"sglang", info.tensors, number_of(info.weight_version), 2, false, delivery->device(), true},
          options.staging, options.rollback),
      server_(std::move(server)),
      info_(std::move(info)),
      delivery_(std::move(delivery)),
      serving_(server_, options.in_flight, [this](bool paused, Deadline) {
          if (paused)
              delivery_->note(one_name(server_), committing_);  // else it goes with the staged version
      }) {
    capabilities_.paused = info_.paused;
    capabilities_.directory = info_.model.config.string();
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
    if (touched) stager().drop();
}

void SglangEngine::commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) {
    delivery_->finish(version, manifest, deadline);
    held_ = {};
    committing_ = version;
    serving_.load(
        version, [&] { return load(version, deadline); }, deadline);
    delivery_->drop();
    committed(version, manifest);
}

// A paused server empties its cache when it is told.
SglangAnswer SglangEngine::load(std::int64_t version, Deadline deadline) {
    if (!serving_.pauses()) {
        return serving_.once_requests_end(
            [&] { return delivery_->load_running(server_, version, deadline); });
    }
    SglangAnswer answer = delivery_->load_paused(server_, deadline);
    if (answer.update == SglangUpdate::done) answer.update = SglangUpdate::cached;
    return answer;
}

void SglangEngine::abort(const std::string& reason, Deadline deadline) {
    const PushLock until_end = std::move(lock_);
    delivery_->drop();
    stager().drop();
    serving_.abort(reason, deadline);
}

}  // namespace tandem::engine
