// Asks the driver which GPUs there are, and whether Tandem can use them.
#include "common/device/cuda/devices.h"

#include <cstdlib>
#include <memory>
#include <mutex>

#include "common/device/cuda/driver.h"
#include "common/device/export.h"
#include "common/log.h"

namespace tandem::cuda {
namespace {

using detail::Gpu;
using detail::Gpus;

constexpr int kNeededCapability = 80;

std::string version(int number) {
    return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::string visible() {
    const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
    return list == nullptr ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES is '{}')", list);
}

// As nvidia-smi -L prints it.
std::string identity(const Driver& d, CUdevice device) {
    CUuuid uuid{};
    check(d.cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid");
    std::string text = "GPU";
    for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
        const bool group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        text += fmt::format("{}{:02x}", group ? "-" : "", static_cast<unsigned char>(uuid.bytes[i]));
    }
    return text;
}

Gpu ask(const Driver& d, int index) {
    CUdevice device = 0;
    check(d.cuDeviceGet(&device, index), "cuDeviceGet");
    char name[256] = {};
    check(d.cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName");
    std::size_t bytes = 0;
    check(d.cuDeviceTotalMem(&bytes, device), "cuDeviceTotalMem");
    int major = 0;
    int minor = 0;
    check(d.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
          "cuDeviceGetAttribute");
    check(d.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
          "cuDeviceGetAttribute");
    Gpu gpu{{name, bytes, major * 10 + minor, "", identity(d, device)}, ""};
    if (gpu.info.capability < kNeededCapability) {
        gpu.refusal = fmt::format("{} has compute capability {}.{}, and Tandem needs 8.0 (A100) or newer",
                                  name, major, minor);
    }
    return gpu;
}

Gpus probe() {
    const OpenedDriver& opened = opened_driver();
    if (opened.table == nullptr) return {{}, opened.reason};
    const Driver& d = driver();
    int supported = 0;
    if (d.cuDriverGetVersion(&supported) == CUDA_SUCCESS && supported < kNeededDriver) {
        return {{},
                fmt::format(
                    "the NVIDIA driver is too old: it supports CUDA {}, this build needs {} (driver 580 or "
                    "newer)",
                    version(supported), version(kNeededDriver))};
    }
    const CUresult started = d.cuInit(0);
    if (started == CUDA_ERROR_NO_DEVICE) return {{}, "the driver sees no GPU" + visible()};
    if (started != CUDA_SUCCESS) return {{}, fmt::format("cuInit: {}", error_text(started))};
    int count = 0;
    check(d.cuDeviceGetCount(&count), "cuDeviceGetCount");
    if (count == 0) return {{}, "the driver sees no GPU" + visible()};
    Gpus found;
    for (int i = 0; i < count; ++i) found.all.push_back(ask(d, i));
    return found;
}

Gpus probe_safely() {
    try {
        return probe();
    } catch (const std::exception& error) {
        return {{}, error.what()};
    }
}

}  // namespace

const Gpus& gpus() {
    static std::mutex mutex;
    static std::unique_ptr<Gpus> found;
    static int generation = -1;
    const std::lock_guard lock(mutex);
    if (generation != driver_generation()) {
        found = std::make_unique<Gpus>(probe_safely());
        generation = driver_generation();
    }
    return *found;
}

bool can_access_peer(Device from, Device memory) {
    int can = 0;
    check(driver().cuDeviceCanAccessPeer(&can, native_device(from), native_device(memory)),
          "cuDeviceCanAccessPeer");
    return can != 0;
}

void enable_peer_access(Device device, Device memory) {
    CUcontext peer = nullptr;
    make_current(memory);
    check(driver().cuCtxGetCurrent(&peer), "cuCtxGetCurrent");
    make_current(device);
    const CUresult result = driver().cuCtxEnablePeerAccess(peer, 0);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return;
    throw IpcRefused(fmt::format(
        "{} does not reach memory of {}: no peer access ({}); use one GPU, or two that reach each other "
        "(nvidia-smi topo -m)",
        to_string(device), to_string(memory), error_text(result)));
}

}  // namespace tandem::cuda
