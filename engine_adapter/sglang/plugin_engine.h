// An SGLang server that was started with our loader (sync/python/tandem_sync/sglang), as sync sees it. Buckets go to the
// receiver in its first rank, which stages and verifies whole versions while the server generates; commit has every rank
// load the staged version, as an update from tensors that SGLang itself carries out.
//
//   InFlight::wait    the server is not paused: it lets the requests that it has end, holds new ones back meanwhile, and
//                     loads, empties its cache and takes the version in one step
//   InFlight::abort   it is paused, which ends its requests, loads, empties its cache, and is resumed
//
//   failed                                         serves afterwards
//   before a rank loaded its first tensor          the version from before
//   the answer is lost: wait                       that or the new one, whole, as its weight version says
//   a rank's load; the answer is lost: abort       nothing: it stays paused, with weight version "loading N"; the next push
//                                                  heals it
// Ranks that failed to load stop serving by themselves, whoever lives to hear of it. What SglangEngine says of pauses of
// others holds here; one that a killed pusher left is known by that weight version, or by the note that it left with the
// first rank before it paused.
#pragma once

#include <string>

#include "engine_adapter/connect.h"
#include "engine_adapter/sglang/probe.h"
#include "engine_adapter/sglang/server.h"
#include "engine_adapter/sglang/serving.h"
#include "engine_adapter/tandem/receiver_engine.h"

namespace tandem::engine {

class SglangPluginEngine final : public ReceiverEngine {
  public:
    // info: as probe_sglang gave it, of a server with our plug-in. url: of the server, and how its receiver is reached.
    SglangPluginEngine(SglangServer server, SglangInfo info, const EngineUrl& url,
                       const ConnectOptions& options, Deadline deadline);

    std::string peer() const override { return server_.name(); }
    void pause(Deadline deadline) override;
    void resume(Deadline deadline) override;
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override;
    void abort(const std::string& reason, Deadline deadline) override;

  private:
    std::string weight_version(Deadline deadline) override { return server_.weight_version(deadline); }

    SglangServer server_;
    SglangInfo info_;
    SglangServing serving_;
};

}  // namespace tandem::engine
