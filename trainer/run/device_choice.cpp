#include "trainer/run/device_choice.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/device/devices.h"

namespace tandem::trainer {
namespace {

std::int64_t gpus() {
    const auto count = static_cast<std::int64_t>(available_devices().size()) - 1;
    if (count == 0) require_device({DeviceType::cuda, 0});  // says why
    return count;
}

Device gpu(std::int64_t index) {
    return {DeviceType::cuda, static_cast<int>(index)};
}

bool engine_has_its_own(const RunConfig& c) {
    return c.sync.transport == "nccl" && c.engine.url.empty();
}

void check_nccl(const RunConfig& c, const config::Schema& s) {
    if (c.sync.mode != "gather") {
        s.refuse(
            "sync.mode",
            fmt::format("over nccl trainer rank 0 sends from its own memory, which only gather fills: use "
                        "gather instead of {}, or sync.transport = auto",
                        c.sync.mode));
    }
    if (engine_has_its_own(c) && gpus() < 2) {
        s.refuse("sync.transport",
                 "NCCL refuses two ranks on one GPU: trainer rank 0 and the engine need a GPU each, and 1 is "
                 "there; use cuda_ipc, which shares a GPU");
    }
}

void check_transport(const RunConfig& c, const config::Schema& s) {
    const std::string& transport = c.sync.transport;
    if (c.sync.nccl_form != "auto" && transport != "nccl")
        s.refuse("sync.nccl_form", "has no meaning unless sync.transport is nccl");
    if (c.run.device == "cpu" && (transport == "cuda_ipc" || transport == "nccl")) {
        s.refuse("sync.transport",
                 fmt::format("{} moves memory of GPUs, and run.device is cpu: use shm, or device = cuda",
                             transport));
    }
    if (transport == "nccl") return check_nccl(c, s);
    if (transport == "cuda_ipc" && c.sync.mode == "delta") {
        s.refuse("sync.transport",
                 "mode delta compares on the CPU, so that what it sends lies in the host's memory: use shm");
    }
    if (transport == "shm" && c.run.device == "cuda" && c.sync.mode == "alias") {
        s.refuse("sync.transport",
                 "in mode alias the engine reads its weights where they lie, and it computes on a GPU: use "
                 "cuda_ipc");
    }
}

}  // namespace

Device device_of_rank(const RunConfig& c, int rank, int local_rank) {
    if (c.run.device == "cpu") return {};
    const bool beside_engine = rank == local_rank;  // on the host of rank 0
    const std::int64_t mine = gpus() - (beside_engine && engine_has_its_own(c) ? 1 : 0);
    return gpu(local_rank % std::max<std::int64_t>(mine, 1));
}

Device device_of_engine(const RunConfig& c) {
    if (c.run.device == "cpu") return {};
    if (engine_has_its_own(c)) return gpu(std::min(c.world_size(), gpus() - 1));
    return gpu(c.world_size() % gpus());
}

void check_device(const RunConfig& c, const config::Schema& s) {
    if (c.run.device == "cuda") {
        try {
            require_device({DeviceType::cuda, 0});
        } catch (const DeviceUnavailable& error) {
            s.refuse("run.device", error.what());
        }
    }
    check_transport(c, s);
    if (c.run.device == "cpu") return;
    const bool shards_leave =
        c.memory.trainer_sleep == "all" || c.memory.offload == "parameters" || c.memory.offload == "all";
    if (c.sync.mode == "direct" && shards_leave && c.syncs_from_gpu()) {
        s.refuse("sync.mode",
                 "direct lets the engine open the shards' memory, and a GPU's memory that is given back "
                 "(memory.offload = parameters or all, memory.trainer_sleep = all) cannot be opened: use "
                 "gather or alias");
    }
}

}  // namespace tandem::trainer
