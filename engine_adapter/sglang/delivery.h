// How an SGLang server without our plug-in gets a version that is staged here. When it is paused, what it is told of versions and
// what a failure leaves is the engine's (engine.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/deadline.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/gpu_staging/gpu_stager.h"
#include "engine_adapter/hf_directory/version_stager.h"
#include "engine_adapter/sglang/probe.h"
#include "engine_adapter/sglang/server.h"

namespace tandem::engine {

// Used by one thread at a time.
class SglangDelivery {
  public:
    virtual ~SglangDelivery() = default;
    virtual VersionStager& stager() = 0;
    virtual Device device() const { return {}; }  // that it brings the weights to: Capabilities::device

    // All of the version is staged, and is what the manifest says. The server, which may generate, is ready for it.
    virtual void finish(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) = 0;
    // For a successor of this process: the server is left paused (staged_directory.h). Until the stager drops it.
    virtual void note(const std::string& server, std::int64_t version) = 0;

    // The server is paused, and its ranks load the staged version; its cache is left as it is.
    virtual SglangAnswer load_paused(SglangServer& server, Deadline deadline) = 0;
    // The same of one that is not, in one step, with the version and its cache emptied. By default throws InvalidArgument:
    // it takes several steps, between which it must not generate.
    virtual SglangAnswer load_running(SglangServer& server, std::int64_t version, Deadline deadline);
    virtual void drop() noexcept {}  // what finish() made, beside the staged version
};

// By the URL's scheme: sglang:// a directory; sglang+tensor:// tensors in shared memory, or of a GPU where both have one;
// sglang+nccl:// a broadcast; sglang+ipc:// checkpoint-engine's protocol. Throws BadInput where the server cannot be served
// that way from here.
std::unique_ptr<SglangDelivery> make_sglang_delivery(SglangServer& server, const SglangInfo& info,
                                                     const std::string& key, const ConnectOptions& options);

// One update after the other. Returns at the first that is not done; a refusal is one only where nothing was loaded before.
SglangAnswer by_chunks(const GpuStager& stager,
                       const std::function<SglangAnswer(const PackedChunk&)>& update);
// Updates between begin and end, where the server has such sessions; `load` says how the last of them was answered.
SglangAnswer in_session(SglangServer& server, bool sessions, Deadline deadline,
                        const std::function<SglangAnswer()>& load);

}  // namespace tandem::engine
