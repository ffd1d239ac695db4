// How a vLLM server without our plug-in gets a version that is staged here: as a directory that its workers load, or by one of
// the weight-transfer backends that come with it. When to pause it and what it is told of versions is the engine's
// (engine.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/deadline.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/hf_directory/version_stager.h"
#include "engine_adapter/vllm/probe.h"
#include "engine_adapter/vllm/server.h"

namespace tandem::engine {

// Used by one thread at a time.
class VllmDelivery {
  public:
    virtual ~VllmDelivery() = default;
    virtual VersionStager& stager() = 0;
    virtual Device device() const { return {}; }  // that it brings the weights to: Capabilities::device

    // All of the version is staged, and is what the manifest says. The server, which may generate, is ready for it.
    virtual void finish(VllmServer& server, std::int64_t version, const ops::Checksum& manifest,
                        Deadline deadline) = 0;
    // For a successor of this process: the server is left paused (staged_directory.h). Until the stager drops it.
    virtual void note(const std::string& server, std::int64_t version) = 0;

    // The server is paused. Returns when every worker has loaded the staged version. broken: an update from before may have
    // ended between its weights.
    virtual void deliver(VllmServer& server, std::int64_t version, bool broken, Deadline deadline) = 0;
    // After deliver() threw: every worker holds what it held before.
    virtual bool untouched() const { return false; }
};

// backend: as weight_transfer_backend() names it; of one that is not known here the server is given a directory. Throws
// BadInput where the backend cannot be served from here; TransportError.
std::unique_ptr<VllmDelivery> make_delivery(const std::string& backend, VllmServer& server,
                                            const VllmInfo& info, const std::string& key,
                                            const ConnectOptions& options, Deadline deadline);
}  // namespace tandem::engine
