#include "common/device/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "common/device/devices.h"
#include "common/error.h"

namespace tandem::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

OpenedDriver open_library() {
    void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed
    if (library == nullptr) {
        const char* detail = ::dlerror();
        return {nullptr,
                fmt::format("there is no NVIDIA driver ({})", detail == nullptr ? kLibrary : detail)};
    }
    static Driver table;
    const char* missing = nullptr;
#define TANDEM_TEXT(name) #name
#define TANDEM_DRIVER_LOAD(name)                                                              \
    table.name = reinterpret_cast<decltype(table.name)>(::dlsym(library, TANDEM_TEXT(name))); \
    if (table.name == nullptr && missing == nullptr) missing = TANDEM_TEXT(name);
    TANDEM_DRIVER_ENTRIES(TANDEM_DRIVER_LOAD)
#undef TANDEM_DRIVER_LOAD
    if (missing == nullptr) return {&table, ""};
    return {nullptr,
            fmt::format("the NVIDIA driver is too old: it has no {}. This build needs one for CUDA {}.{} "
                        "(driver 580 or newer)",
                        missing, kNeededDriver / 1000, kNeededDriver % 1000 / 10)};
}

struct Holder {
    std::mutex mutex;
    std::unique_ptr<OpenedDriver> opened;
    std::array<CUcontext, 64> contexts{};
    std::atomic<int> generation{0};
};

std::atomic<bool> g_forked{false};

// A driver that was started does not survive a fork: calls in the child fail in odd ways, or hang.
void notice_forks() {
    static const int once = ::pthread_atfork(nullptr, nullptr, [] { g_forked.store(true); });
    (void)once;
}

Holder& holder() {
    static Holder* instance = new Holder;
    return *instance;
}

}  // namespace

const OpenedDriver& opened_driver() {
    Holder& h = holder();
    const std::lock_guard lock(h.mutex);
    if (!h.opened) h.opened = std::make_unique<OpenedDriver>(open_library());
    return *h.opened;
}

const Driver& driver() {
    const OpenedDriver& opened = opened_driver();
    if (opened.table == nullptr) throw DeviceUnavailable("no GPU can be used: " + opened.reason);
    notice_forks();
    if (g_forked.load())
        throw DeviceUnavailable(
            "this process was forked from one that had used a GPU, and cannot use it: start it as a "
            "program of its own (fork and exec), or fork before the first use");
    return *opened.table;
}

void replace_driver(const Driver* table, const std::string& reason) {
    Holder& h = holder();
    const std::lock_guard lock(h.mutex);
    h.opened = std::make_unique<OpenedDriver>(OpenedDriver{table, reason});
    h.contexts = {};
    ++h.generation;
}

int driver_generation() {
    return holder().generation.load();
}

std::string error_text(CUresult result) {
    const char* name = nullptr;
    const char* meaning = nullptr;
    driver().cuGetErrorName(result, &name);
    driver().cuGetErrorString(result, &meaning);
    return fmt::format("{}: {}", name == nullptr ? std::to_string(result) : name,
                       meaning == nullptr ? "unknown to this driver" : meaning);
}

void check(CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return;
    const char* name = nullptr;
    const char* meaning = nullptr;
    driver().cuGetErrorName(result, &name);
    driver().cuGetErrorString(result, &meaning);
    throw CudaError(call, name == nullptr ? std::to_string(result) : name,
                    meaning == nullptr ? "an error unknown to this driver" : meaning);
}

CUdevice native_device(Device device) {
    CUdevice native = 0;
    check(driver().cuDeviceGet(&native, device.index), "cuDeviceGet");
    return native;
}

void make_some_current() {
    CUcontext current = nullptr;
    check(driver().cuCtxGetCurrent(&current), "cuCtxGetCurrent");
    if (current != nullptr) return;
    int index = 0;
    {
        Holder& h = holder();
        const std::lock_guard lock(h.mutex);
        const auto used =
            std::find_if(h.contexts.begin(), h.contexts.end(), [](auto c) { return c != nullptr; });
        if (used != h.contexts.end()) index = static_cast<int>(used - h.contexts.begin());
    }
    make_current({DeviceType::cuda, index});
}

void make_current(Device device) {
    const Driver& d = driver();
    Holder& h = holder();
    CUcontext context = nullptr;
    {
        const std::lock_guard lock(h.mutex);
        context = h.contexts.at(static_cast<std::size_t>(device.index));
    }
    if (context == nullptr) {
        check(d.cuDevicePrimaryCtxRetain(&context, native_device(device)), "cuDevicePrimaryCtxRetain");
        const std::lock_guard lock(h.mutex);
        h.contexts.at(static_cast<std::size_t>(device.index)) = context;
    }
    check(d.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

}  // namespace tandem::cuda
