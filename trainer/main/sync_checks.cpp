#include "trainer/main/sync_checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/error.h"
#include "common/identity/host_identity.h"
#include "engine_adapter/connect.h"
#include "trainer/config/engine_url.h"
#include "trainer/run/device_choice.h"

namespace tandem::trainer {
namespace {

constexpr Device kGpu{DeviceType::cuda, 0};

sync::Setting setting_of(const RunConfig& c) {
    sync::Setting setting;
    if (c.run.device == "cuda") setting.weights = kGpu;
    setting.transport = c.sync.transport;
    if (is_third_party(c.engine.url)) {  // known before there is a connection
        setting.engine_stages = true;
        setting.engine_reads_in_place = false;
    }
    return setting;
}

void check_third_party_engine(const RunConfig& c, const config::Schema& s) {
    if (c.engine.url.empty()) return;
    try {
        engine::check_name(c.engine.url);
    } catch (const BadInput& error) {
        s.refuse("engine.url", error.what());
    }
    if (!is_third_party(c.engine.url)) return;
    if (c.sync.transport == "cuda_ipc" || c.sync.transport == "nccl") {
        s.refuse("sync.transport", fmt::format("{}: weights go to {} through the host's memory; use auto",
                                               c.sync.transport, c.engine.url));
    }
}

// On a GPU: the sync that is asked for goes from there, or may go through the host's memory instead.
void check_gpu(const RunConfig& c, const config::Schema& s) {
    sync::Setting setting = setting_of(c);
    const auto refused = refusal(sync_mode(c), setting);
    if (!refused) return;
    if (setting.transport == "nccl") s.refuse("sync.mode", refused->sentence());
    if (setting.transport == "cuda_ipc")
        s.refuse("sync.transport", refused->why + ": use shm, through the host's memory");
    setting.engine = setting.weights;
    setting.weights = {};
    if (const auto from_host = refusal(sync_mode(c), setting)) {
        s.refuse("sync.transport", fmt::format("by shm {}, which mode {} cannot do: use cuda_ipc",
                                               from_host->why, c.sync.mode));
    }
}

}  // namespace

sync::Mode sync_mode(const RunConfig& config) {
    return sync::mode_from_name(config.sync.mode);
}

bool syncs_from_gpu(const RunConfig& config) {
    return config.run.device == "cuda" && !refusal(sync_mode(config), setting_of(config));
}

void check_sync_memory(const RunConfig& c, const config::Schema& s) {
    sync::Setting setting;
    setting.engine_drops_weights = c.memory.engine_sleep == "all";
    if (const auto refused = refusal(sync_mode(c), setting)) {
        s.refuse("memory.engine_sleep",
                 fmt::format("mode {}: {}, or kv_cache here", refused->why, refused->advice));
    }
}

void check_sync(const RunConfig& c, const config::Schema& s) {
    check_third_party_engine(c, s);
    if (c.run.device == "cuda") {
        check_gpu(c, s);
    } else if (const auto refused = refusal(sync_mode(c), setting_of(c))) {
        if (refused->about == sync::Refusal::About::mode) s.refuse("sync.mode", refused->sentence());
        s.refuse("sync.transport", refused->sentence() + "; run.device is cpu");
    }
    if (c.sync.nccl_form != "auto" && c.sync.transport != "nccl")
        s.refuse("sync.nccl_form", "has no meaning unless sync.transport is nccl");
    if (c.run.device == "cuda" && engine_has_own_gpu(c) && gpu_count() < 2) {
        s.refuse("sync.transport",
                 "NCCL refuses two ranks on one GPU: trainer rank 0 and the engine need a GPU each, and 1 is "
                 "there; use cuda_ipc, which shares a GPU");
    }
    if (!syncs_from_gpu(c)) return;
    sync::Setting setting = setting_of(c);
    setting.shards_leave =
        c.memory.trainer_sleep == "all" || c.memory.offload == "parameters" || c.memory.offload == "all";
    if (const auto refused = refusal(sync_mode(c), setting)) {
        s.refuse("sync.mode",
                 fmt::format("{} (memory.offload = parameters or all, memory.trainer_sleep = all): {}",
                             refused->why, refused->advice));
    }
}

std::string detour(comm::Communicator& world, Device weights, const engine::Engine* engine,
                   const RunConfig& config) {
    if (weights.type == DeviceType::cpu) return {};
    struct Whereabouts {
        std::uint64_t host = 0;
        std::uint64_t engine_on_cpu = 0;
        std::uint64_t engine_remote = 0;
    };
    const Whereabouts mine{
        std::hash<std::string>()(host_identity()),
        engine != nullptr && engine->capabilities().device.type == DeviceType::cpu ? 1U : 0U,
        engine != nullptr && engine->capabilities().remote ? 1U : 0U};
    std::vector<Whereabouts> all(static_cast<std::size_t>(world.size()));
    world.all_gather({reinterpret_cast<const std::byte*>(&mine), sizeof(mine)},
                     {reinterpret_cast<std::byte*>(all.data()), sizeof(mine) * all.size()});
    sync::Setting setting = setting_of(config);
    if (all[0].engine_remote != 0) setting.transport = "tcp";
    setting.engine = all[0].engine_on_cpu != 0 ? Device{} : kGpu;
    setting.several_hosts =
        std::any_of(all.begin(), all.end(), [&](const Whereabouts& one) { return one.host != all[0].host; });
    const auto refused = refusal(sync_mode(config), setting);
    return refused ? refused->why : "";
}

}  // namespace tandem::trainer
