// An SGLang server without our plug-in, as sync sees it. It is given whole versions: buckets are staged while it generates, and only
// commit has it load the staged version (delivery.h; by default a directory in shared memory), empty its prefix cache and take
// the version. So the port's pause only looks whether the server answers: nothing it reads is overwritten before
// commit.
//
//   InFlight::wait    the server is not paused: it lets the requests that it has end, holds new ones back meanwhile, and
//                     loads, empties its cache and takes the version in one step
//   InFlight::abort   it is paused, which ends its requests, loads, empties its cache, and is resumed
//   InFlight::keep    the same, and its requests go back to its queue instead
//
//   failed                         serves afterwards
//   before the load, or refused    the version from before
//   the answer is lost: wait       that or the new one, whole, as its weight version says
//   the answer is lost: abort      nothing: it stays paused, with weight version "loading N"; the next push heals it
//   in the load                    nothing, the same
// As sglang+tensor:// it is given the staged weights as tensors where they lie (tensor_delivery.h), as sglang+nccl:// it is
// sent them from a GPU (nccl_delivery.h), as sglang+ipc:// told what of them to load by checkpoint-engine's protocol
// (checkpoint_delivery.h): in several steps, so that it must be paused: InFlight::abort. It then goes on to name the model
// that it was started with as its own.
// SGLang says that it rolls back a load that fails, but reads the same directory again for that, fails again, and ends;
// so it does where it cannot open the tensors that it is given (0.5.15.post1, 0.5.23). A server that was started again
// holds what it was started with, and is pushed to as any other.
// Between a request's answer and its end in the scheduler 0.5.23 may load and not empty its cache: requests that began
// since then are ended, as with InFlight::abort, and say so; one that is answered before that may have read cached keys
// and values of the weights from before. Our plug-in (plugin_engine.h) closes that gap.
// A pause that somebody else asked for stays, where the server can tell of it (from 0.5.21).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine_adapter/connect.h"
#include "engine_adapter/hf_directory/push_lock.h"
#include "engine_adapter/hf_directory/staging_engine.h"
#include "engine_adapter/sglang/delivery.h"
#include "engine_adapter/sglang/probe.h"
#include "engine_adapter/sglang/server.h"
#include "engine_adapter/sglang/serving.h"

namespace tandem::engine {

// "sglang://HOST:PORT", "sglang+tensor://…", "sglang+nccl://…", "sglang+ipc://…". SGLang's own ranks are its affair: one name, one Engine.
std::vector<std::unique_ptr<Engine>> connect_sglang(const std::vector<std::string>& names,
                                                    const ConnectOptions& options, Deadline deadline);

class SglangEngine final : public StagingEngine {
  public:
    SglangEngine(SglangServer server, SglangInfo info, std::unique_ptr<SglangDelivery> delivery,
                 const ConnectOptions& options);

    std::string peer() const override { return server_.name(); }
    void pause(Deadline deadline) override;
    void resume(Deadline deadline) override;
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override;
    void abort(const std::string& reason, Deadline deadline) override;

  private:
    VersionStager& stager() override { return delivery_->stager(); }
    std::string weight_version(Deadline deadline) override { return server_.weight_version(deadline); }

    SglangAnswer load(std::int64_t version, Deadline deadline);

    SglangServer server_;
    SglangInfo info_;
    std::unique_ptr<SglangDelivery> delivery_;
    SglangServing serving_;
    std::int64_t committing_ = 0;  // the version that a note is left of
    PushLock lock_;                // from pause to resume or abort
};

}  // namespace tandem::engine
