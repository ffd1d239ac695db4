// Chooses the communicator that serves a GPU: the ranks compare their GPUs.
#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "common/comm/nccl/communicator.h"
#include "common/device/devices.h"
#include "common/error.h"
#include "common/identity/gpu_identity.h"
#include "common/identity/host_identity.h"
#include "common/log.h"

namespace tandem::comm {
namespace {

struct RankGpu {  // what each rank tells the others
    std::array<char, 160> host{};
    std::array<char, 80> gpu{};
    bool served = false;  // NCCL knows this kind of GPU
    bool nccl = false;    // and can be loaded there
};

void put(auto& to, const std::string& text) {
    text.copy(to.data(), to.size() - 1);
}

}  // namespace

std::shared_ptr<Communicator> for_device(std::shared_ptr<Communicator> world, Device device) {
    if (device.type == DeviceType::cpu) return world;
    require_device(device);
    const char* variable = std::getenv("TANDEM_COMM");
    const std::string wanted = variable == nullptr ? "" : variable;
    if (world->size() == 1 && wanted != "nccl") return world;  // no peer, over NCCL or otherwise
    RankGpu own;
    put(own.host, host_identity());
    put(own.gpu, gpu_identity(device));
    std::string why_not = device_info(device).no_nccl;
    own.served = why_not.empty();
    try {
        if (own.served && wanted != "ipc") nccl::loaded();
        own.nccl = own.served;
    } catch (const DeviceUnavailable& error) {
        why_not = error.what();
    }
    std::vector<RankGpu> all(static_cast<std::size_t>(world->size()));
    world->all_gather({reinterpret_cast<const std::byte*>(&own), sizeof(own)},
                      {reinterpret_cast<std::byte*>(all.data()), sizeof(own) * all.size()});
    std::map<std::string, int> hosts;
    std::map<std::string, int> gpus;  // and the rank that has it
    bool served = true;
    bool everywhere = true;
    std::string shared;
    for (int rank = 0; rank < world->size(); ++rank) {
        const RankGpu& one = all[static_cast<std::size_t>(rank)];
        hosts.emplace(one.host.data(), rank);
        const auto [found, fresh] = gpus.emplace(fmt::format("{} {}", one.host.data(), one.gpu.data()), rank);
        if (!fresh && shared.empty())
            shared = fmt::format("ranks {} and {} share {}", found->second, rank, one.gpu.data());
        served = served && one.served;
        everywhere = everywhere && one.nccl;
    }
    const bool possible = everywhere && shared.empty();
    if (possible && wanted != "ipc") return nccl::make_world(std::move(world), device);
    const std::string reason = !served && !why_not.empty() ? why_not
                               : !shared.empty()           ? shared + ", which NCCL refuses"
                               : why_not.empty()           ? "another rank cannot load it"
                                                           : why_not;
    if (wanted == "nccl")
        throw ConfigError("environment", "TANDEM_COMM", "'nccl' is not possible here: " + reason);
    if (hosts.size() > 1) {
        throw ConfigError(
            "environment", "TANDEM_COMM",
            fmt::format("ranks on {} hosts with device {} need nccl, and it is not possible here: {}",
                        hosts.size(), to_string(device), wanted == "ipc" ? "TANDEM_COMM is ipc" : reason));
    }
    return world;  // ipc: peers' memory through CUDA IPC
}

}  // namespace tandem::comm
