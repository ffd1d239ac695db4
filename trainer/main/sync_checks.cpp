#include "trainer/main/sync_checks.h"

#include <fmt/core.h>

#include <string>

#include "trainer/run/device_choice.h"

namespace tandem::trainer {
namespace {

void check_nccl(const RunConfig& c, const config::Schema& s) {
    if (c.sync.mode != "gather") {
        s.refuse(
            "sync.mode",
            fmt::format("over nccl trainer rank 0 sends from its own memory, which only gather fills: use "
                        "gather instead of {}, or sync.transport = auto",
                        c.sync.mode));
    }
    if (engine_has_own_gpu(c) && gpu_count() < 2) {
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

bool syncs_from_gpu(const RunConfig& c) {
    return c.run.device == "cuda" && c.sync.mode != "delta" && c.sync.transport != "shm";
}

void check_sync(const RunConfig& c, const config::Schema& s) {
    if (c.memory.engine_sleep == "all" && (c.sync.mode == "alias" || c.sync.mode == "delta")) {
        s.refuse("memory.engine_sleep",
                 fmt::format(
                     "all needs a sync that brings every byte; in mode {} the engine reads or changes what "
                     "it has: use kv_cache, or mode gather or direct",
                     c.sync.mode));
    }
}

void check_sync_devices(const RunConfig& c, const config::Schema& s) {
    check_transport(c, s);
    if (c.run.device == "cpu") return;
    const bool shards_leave =
        c.memory.trainer_sleep == "all" || c.memory.offload == "parameters" || c.memory.offload == "all";
    if (c.sync.mode == "direct" && shards_leave && syncs_from_gpu(c)) {
        s.refuse("sync.mode",
                 "direct lets the engine open the shards' memory, and a GPU's memory that is given back "
                 "(memory.offload = parameters or all, memory.trainer_sleep = all) cannot be opened: use "
                 "gather or alias");
    }
}

}  // namespace tandem::trainer
