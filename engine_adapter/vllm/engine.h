// A vLLM server without our plug-in, as sync sees it. It is given whole versions: buckets are staged while it generates, and only
// commit pauses it, has its workers load the staged version, and tells it the version. So the port's pause only looks whether
// the server answers: nothing it reads is overwritten before commit. How its workers come to the weights is a delivery's
// (delivery.h): as a directory in shared memory, or by the server's own backend "ipc", "nccl" or "sparse_nccl", if it has one.
//
//   failed                              serves afterwards
//   before the server was paused        the version from before; it never noticed
//   between that and the load           the version from before: abort resumes it; so where the delivery knows that no worker
//                                       has begun to load (VllmDelivery::untouched)
//   in the load, or its answer is lost  nothing: it stays paused, with weight version "loading N"; the next push heals it
// Given a directory, its workers then take that, which goes with the push, for the model's: a reload of somebody else's
// that names no directory fails and leaves no whole weights, until the next push.
// A pause that somebody else asked for stays, and a server that sleeps stays asleep but for its weights (others_pause.h).
// A pause that a push left behind is known by that weight version, or by the note in what a killed pusher left staged, and
// ends with the next push. From pause to resume or abort no other pusher of this host gets at the server
// (hf_directory/push_lock.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine_adapter/connect.h"
#include "engine_adapter/hf_directory/push_lock.h"
#include "engine_adapter/hf_directory/staging_engine.h"
#include "engine_adapter/vllm/delivery.h"
#include "engine_adapter/vllm/others_pause.h"
#include "engine_adapter/vllm/probe.h"
#include "engine_adapter/vllm/server.h"

namespace tandem::engine {

// "vllm://HOST:PORT". vLLM's own ranks are its affair: one name, one Engine.
std::vector<std::unique_ptr<Engine>> connect_vllm(const std::vector<std::string>& names,
                                                  const ConnectOptions& options, Deadline deadline);

class VllmEngine final : public StagingEngine {
  public:
    VllmEngine(VllmServer server, VllmInfo info, std::unique_ptr<VllmDelivery> delivery,
               const ConnectOptions& options);
    ~VllmEngine() override;

    std::string peer() const override { return server_.name(); }
    void pause(Deadline deadline) override;
    void resume(Deadline deadline) override;
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override;
    void abort(const std::string& reason, Deadline deadline) override;

  private:
    VersionStager& stager() override { return stager_; }
    std::string weight_version(Deadline deadline) override { return server_.weight_version(deadline); }

    enum class Server : std::uint8_t {
        running,  // or paused by somebody else
        paused,   // by this push
        loading   // was told to load, and has not said that it did
    };
    void learn_state(Deadline deadline);
    void load_staged(std::int64_t version, Deadline deadline);
    void deliver(std::int64_t version, Deadline deadline);

    VllmServer server_;
    VllmInfo info_;
    std::unique_ptr<VllmDelivery> delivery_;
    VersionStager& stager_;  // its
    InFlight in_flight_;
    bool partial_;   // some of the weights, beside those that it has
    PushLock lock_;  // from pause to resume or abort
    Server state_ = Server::running;
    OthersPause others_;
    bool others_paused_ = false;  // it stays so
    bool broken_ = false;         // it holds no whole version that is known
    bool left_paused_ = false;    // by a push that did not come to its end
};

}  // namespace tandem::engine
