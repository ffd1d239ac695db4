// The devices that this process can use, and why it cannot use others. Asked once: the answer does not
// change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/device/device.h"
#include "common/error.h"

namespace tandem {

// A device that was asked for and cannot be used: what is missing, where, what to do.
class DeviceUnavailable : public BadInput {
  public:
    using BadInput::BadInput;
};

struct DeviceInfo {
    std::string name;  // "CPU", "NVIDIA H200", "NVIDIA A100-SXM4-80GB"
    std::uint64_t total_bytes = 0;
    int capability = 0;   // 90: compute capability 9.0; 0 where there is none
    std::string no_nccl;  // why NCCL joins no ranks on it; empty: it may
    // A GPU by a name that is the same in every process of the host: "GPU-8a3f0c12-…" as nvidia-smi -L prints
    // it. Empty: the CPU.
    std::string identity;
};

// The CPU, then every GPU that Tandem can use. Never throws for a missing or unusable one.
std::vector<Device> available_devices();
void require_device(Device device);  // throws DeviceUnavailable
DeviceInfo device_info(Device device);
// Memory that is free: on a GPU as its driver counts, all processes together (blocks that device_pool() keeps
// for later are not free); on the CPU as the system says. Throws DeviceUnavailable.
std::uint64_t free_bytes(Device device);
// Whether a GPU reaches another one's memory directly. Throws DeviceUnavailable.
bool can_access_peer(Device from, Device memory);
// From here on kernels on `device` reach plain memory (an ExportArena) of the other GPU of this process;
// between processes the handle does it (export.h). Idempotent. Throws IpcRefused where the two have no peer
// access.
void enable_peer_access(Device device, Device memory);

// "cpu", "cuda" (its first GPU) or "cuda:1". Throws BadInput. Does not ask whether it is there.
Device device_from_name(const std::string& name);

}  // namespace tandem
