// Delivers by a broadcast: the version is staged on this process's GPU and sent to every rank of an SGLang server, each on
// a GPU of its own, chunk by chunk. This process is rank 0 of their group, and hosts the store by which PyTorch's process
// groups meet (torch_store/).
//
// The ranks are told where to meet before the first delivery, while the server generates. They join NCCL's communicator
// with their first broadcast, inside the first pause: PyTorch makes it only then.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine_adapter/gpu_staging/broadcast_root.h"
#include "engine_adapter/gpu_staging/gpu_stager.h"
#include "engine_adapter/sglang/delivery.h"
#include "engine_adapter/torch_store/torch_store.h"

namespace tandem::engine {

class SglangBroadcast final : public SglangDelivery {
  public:
    SglangBroadcast(const SglangServer& server, const SglangInfo& info, const std::string& key, Device device,
                    const ConnectOptions& options);
    ~SglangBroadcast() override;  // the server's ranks leave the group, too

    VersionStager& stager() override { return stager_; }
    Device device() const override { return stager_.device(); }
    void finish(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override;
    void note(const std::string& server, std::int64_t version) override;
    SglangAnswer load_paused(SglangServer& server, Deadline deadline) override;

  private:
    void meet(Deadline deadline);
    SglangAnswer send(const PackedChunk& chunk, Deadline deadline);
    void publish_id(PendingCall& call, Deadline deadline);
    void leave() noexcept;

    std::int64_t ranks_;
    bool sessions_;
    std::filesystem::path model_;
    std::filesystem::path staging_;
    GpuStager stager_;
    SglangServer beside_;  // for calls that the ranks answer only when this end has done its half
    BroadcastRoot root_;
    comm::nccl::UniqueId id_{};
    std::unique_ptr<TorchStore> store_;  // while the ranks may ask it
    std::string group_;                  // that they were told to join; empty: none
};

}  // namespace tandem::engine
