// The NCCL group of this process and all workers of a vLLM server (gpu_staging/broadcast_root.h): for the server's backends
// that are broadcast their weights. The id comes to the workers with the call that has them join, so nothing listens here.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "engine_adapter/gpu_staging/broadcast_root.h"
#include "engine_adapter/vllm/server.h"

namespace tandem::engine {

class WorkerGroup {
  public:
    // Asks the server how many workers it has. key: for its HTTP server.
    WorkerGroup(VllmServer& server, const std::string& key, const ConnectOptions& options, Deadline deadline);
    ~WorkerGroup();  // the server's workers leave the group, too
    WorkerGroup(const WorkerGroup&) = delete;
    WorkerGroup& operator=(const WorkerGroup&) = delete;

    bool formed() const { return root_.joined(); }
    // Joins from `device`, with the workers, which leave the group from before. The server may generate. init_info: what
    // the backend is told beside. Throws TransportError, DeadlineExceeded; then it is not formed.
    void form(Device device, nlohmann::json init_info, Deadline deadline);

    // Has the workers take an update, of which `info` says what it is, and broadcasts its pieces, one by one. They lie on
    // the device and come behind the work of stream() so far. Returns when the workers have loaded it; where this throws,
    // the group has been left.
    void update(const nlohmann::json& info, std::span<const Span> pieces, Deadline deadline);
    Stream& stream() { return root_.stream(); }  // while it is formed

    void leave() noexcept { root_.leave(); }  // nothing reads the pieces any more

  private:
    void dismiss_workers() noexcept;

    VllmServer beside_;  // for calls that the workers answer only when this end has done its half
    std::int64_t workers_;
    bool workers_in_group_ = false;  // of this end's, be it there or not
    BroadcastRoot root_;
};

}  // namespace tandem::engine
