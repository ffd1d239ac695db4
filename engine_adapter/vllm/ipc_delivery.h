// Delivers to vLLM's backend "ipc": the version is staged on this process's GPU, which must be the server's only one
// too, and its worker copies it out of there by CUDA IPC.
//
//   packed   chunk by chunk; the worker copies each before it answers
//   not      all tensors at once; the worker reads some of them until the update's end, so that a pusher that is killed
//            before takes them away from under it
// The server must have been started with VLLM_ALLOW_INSECURE_SERIALIZATION=1: handles come as a pickle. Whether it can
// open our memory is found out before it is told of a tensor (packed; by the first version of a connection, and wherever the
// server says another than the last), and then it keeps the weights that it has.
#pragma once

#include <string>

#include "engine_adapter/gpu_staging/gpu_stager.h"
#include "engine_adapter/vllm/delivery.h"

namespace tandem::engine {

class IpcDelivery final : public VllmDelivery {
  public:
    // Throws BadInput: the server has several GPUs.
    IpcDelivery(VllmServer& server, const VllmInfo& info, Device device, const ConnectOptions& options,
                Deadline deadline);

    VersionStager& stager() override { return stager_; }
    Device device() const override { return stager_.device(); }
    void finish(VllmServer& server, std::int64_t version, const ops::Checksum& manifest,
                Deadline deadline) override;
    void note(const std::string& server, std::int64_t version) override;
    void deliver(VllmServer& server, std::int64_t version, bool broken, Deadline deadline) override;
    bool untouched() const override { return untouched_; }

  private:
    void let_open(VllmServer& server, Deadline deadline);
    void send_packed(VllmServer& server, Deadline deadline);
    void send_all(VllmServer& server, Deadline deadline);

    GpuStager stager_;
    std::filesystem::path model_;
    std::filesystem::path staging_;
    bool packed_;
    bool untouched_ = false;
    bool opens_ = false;          // our memory
    std::int64_t delivered_ = 0;  // the last version; 0: none
};

}  // namespace tandem::engine
