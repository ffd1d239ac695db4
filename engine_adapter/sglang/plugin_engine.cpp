#include "engine_adapter/sglang/plugin_engine.h"

#include <utility>

#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/http_api/weight_version.h"

namespace tandem::engine {

SglangPluginEngine::SglangPluginEngine(SglangServer server, SglangInfo info, const EngineUrl& url,
                                       const ConnectOptions& options, Deadline deadline)
    : ReceiverEngine(options.rollback),
      server_(std::move(server)),
      info_(std::move(info)),
      serving_(server_, options.in_flight,
               [this](bool paused, Deadline until) { server_.leave_note(paused, until); }) {
    connect_receiver("sglang", number_of(info_.weight_version), info_.plugin->at, url, options, deadline);
}

// Since it was asked last, another push may have come and gone, or have died on its way.
void SglangPluginEngine::pause(Deadline deadline) {
    if (serving_.touched()) return;
    info_.weight_version = server_.weight_version(deadline);
    info_.plugin = plugin_state(server_, deadline);
    capabilities_.version = number_of(info_.weight_version);
    serving_.find(info_.weight_version, info_.plugin->paused_by_push, !info_.plugin->whole, deadline);
}

void SglangPluginEngine::resume(Deadline deadline) {
    serving_.resume(deadline);
}

void SglangPluginEngine::commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) {
    stage(version, manifest, deadline);
    serving_.load(
        version,
        [&] {
            return serving_.once_requests_end(
                [&] { return server_.load_staged(version, info_.ranks, deadline); });
        },
        deadline);
    loaded(version);
}

void SglangPluginEngine::abort(const std::string& reason, Deadline deadline) {
    drop_staged(reason, deadline);
    serving_.abort(reason, deadline);
}

}  // namespace tandem::engine
