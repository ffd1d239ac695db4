// Delivers to vLLM's backend "nccl": the version is staged on this process's GPU and broadcast to every worker, each on
// a GPU of its own. This process is rank 0 of their group; the id comes to them with the call that has them join, so
// nothing listens here.
//
// The group is formed before the first delivery, while the server generates, and stays. NCCL tells nobody that a peer is
// gone: after a failure this end leaves the group, and a worker may wait in it until the server is restarted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/comm/nccl/handle.h"
#include "common/device/stream.h"
#include "engine_adapter/gpu_staging/gpu_stager.h"
#include "engine_adapter/http_api/pending_call.h"
#include "engine_adapter/vllm/delivery.h"

namespace tandem::engine {

class NcclDelivery final : public VllmDelivery {
  public:
    NcclDelivery(VllmServer& server, const VllmInfo& info, const std::string& key, Device device,
                 const ConnectOptions& options, Deadline deadline);
    ~NcclDelivery() override;  // the server's workers leave the group, too

    VersionStager& stager() override { return stager_; }
    Device device() const override { return stager_.device(); }
    void finish(VllmServer& server, std::int64_t version, const ops::Checksum& manifest,
                Deadline deadline) override;
    void note(const std::string& server, std::int64_t version) override;
    void deliver(VllmServer& server, std::int64_t version, bool broken, Deadline deadline) override;

  private:
    const comm::nccl::Api& api() const;
    void form(Deadline deadline);
    void join(const comm::nccl::UniqueId& id, PendingCall& workers_join, Deadline deadline);
    void broadcast_all(PendingCall& workers_receive, Deadline deadline);
    void broadcast(Span bytes, PendingCall& workers_receive, Deadline deadline);
    void wait_sent(const std::string& phase, PendingCall& workers, Deadline deadline);
    void leave() noexcept;
    void dismiss_workers() noexcept;

    GpuStager stager_;
    VllmServer beside_;  // for calls that the workers answer only when this end has done its half
    std::filesystem::path model_;
    std::filesystem::path staging_;
    std::uint64_t packed_bytes_;
    std::int64_t workers_;
    bool workers_in_group_ = false;  // of this end's, be it there or not
    const comm::nccl::Api* api_;
    std::optional<Stream> stream_;
    std::optional<comm::nccl::Handle> group_;
};

}  // namespace tandem::engine
