#include "engine_adapter/vllm/worker_group.h"

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/torch_pickle/tensors.h"

namespace tandem::engine {
namespace {

constexpr std::chrono::seconds kLeave{5};

}  // namespace

WorkerGroup::WorkerGroup(VllmServer& server, const std::string& key, const ConnectOptions& options,
                         Deadline deadline)
    : beside_(server.name(), key),
      workers_(server.world_size(deadline)),
      root_(server.name(), "start it with the backend \"ipc\"", options) {}

WorkerGroup::~WorkerGroup() {
    leave();
    dismiss_workers();
}

void WorkerGroup::dismiss_workers() noexcept {
    if (!workers_in_group_) return;
    workers_in_group_ = false;
    try {
        beside_.shutdown_weight_transfer(Deadline::after(kLeave));
    } catch (const std::exception& error) {
        log_warn("{}: its workers keep a communicator that nobody uses: {}", beside_.name(), error.what());
    }
}

// A worker sums one number over all ranks as soon as it has joined.
void WorkerGroup::form(Device device, nlohmann::json init_info, Deadline deadline) {
    leave();
    dismiss_workers();
    const comm::nccl::UniqueId id = root_.start(device);
    init_info["nccl_unique_id_b64"] = base64({id.bytes, sizeof id.bytes});
    init_info["rank_offset"] = 1;
    init_info["world_size"] = 1 + workers_;
    PendingCall workers_join([&] { beside_.init_weight_transfer(init_info, deadline); });
    try {
        root_.join(id, workers_, workers_join, deadline);
        root_.sum(workers_join, deadline);
        workers_join.wait();
        workers_in_group_ = true;
    } catch (...) {
        leave();
        throw;
    }
}

void WorkerGroup::update(const nlohmann::json& info, std::span<const Span> pieces, Deadline deadline) {
    PendingCall workers_receive([&] { beside_.update_weights(info, deadline); });
    try {
        root_.broadcast(pieces, workers_receive, deadline);
        workers_receive.wait();
    } catch (...) {
        leave();
        throw;
    }
}

}  // namespace tandem::engine
