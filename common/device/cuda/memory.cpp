// The stream-ordered pool of each GPU, and the pool of pinned host memory.
#include "common/device/cuda/memory.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>

#include "common/device/cpu/caching_pool.h"
#include "common/device/cuda/capture.h"
#include "common/device/cuda/devices.h"
#include "common/device/cuda/driver.h"
#include "common/device/devices.h"
#include "common/device/stream_backend.h"
#include "common/log.h"

namespace tandem::cuda {
namespace {

// The calling thread's context is what it was, or none again. To ask cudart would make GPU 0's on a thread
// that has none.
class KeepCurrent {
  public:
    KeepCurrent() { check(driver().cuCtxGetCurrent(&before_), "cuCtxGetCurrent"); }
    ~KeepCurrent() { (void)driver().cuCtxSetCurrent(before_); }
    KeepCurrent(const KeepCurrent&) = delete;
    KeepCurrent& operator=(const KeepCurrent&) = delete;

  private:
    CUcontext before_ = nullptr;
};

CUstream native(detail::StreamBackend& stream) {
    return static_cast<CUstream>(stream.native());
}

// The device's own pool, which shares what is kept with the kernels' scratch (cudaMallocAsync); null: it offers none.
CUmemoryPool keeping_pool(Device device) {
    make_current(device);
    int offered = 0;
    check(driver().cuDeviceGetAttribute(&offered, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
                                        native_device(device)),
          "cuDeviceGetAttribute");
    if (offered == 0) return nullptr;
    CUmemoryPool pool = nullptr;
    check(driver().cuDeviceGetDefaultMemPool(&pool, native_device(device)), "cuDeviceGetDefaultMemPool");
    cuuint64_t keep = ~cuuint64_t{0};
    check(driver().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
          "cuMemPoolSetAttribute");
    return pool;
}

// Blocks come and go in the order of a compute stream (detail::compute_stream). Where a thread has none, a
// stream of the pool's own takes its part, and the host waits.
class Pool final : public MemoryPool {
  public:
    explicit Pool(Device device) : device_(device), pool_(keeping_pool(device)) {
        check(driver().cuStreamCreate(&own_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        if (pool_ != nullptr) return;
        log_info("{} offers no memory pools: each allocation goes to the driver, which is slower",
                 to_string(device));
    }

    Device device() const override { return device_; }

    std::byte* allocate(std::size_t bytes) override {
        const auto owner = detail::compute_stream(device_);
        CUstream stream = owner ? native(*owner) : own_;
        CUdeviceptr data = 0;
        CUresult result = take(data, bytes, stream);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && !capturing_here()) {
            trim();
            result = take(data, bytes, stream);
        }
        if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(device_, bytes, cuda::free_bytes(device_));
        check(result, "cuMemAllocFromPoolAsync");
        if (!owner && pool_ != nullptr) check(driver().cuStreamSynchronize(own_), "cuStreamSynchronize");
        auto* address = reinterpret_cast<std::byte*>(data);
        const std::lock_guard lock(mutex_);
        streams_[address] = owner;
        return address;
    }

    void release(std::byte* data, std::size_t) noexcept override {
        try {
            std::shared_ptr<detail::StreamBackend> owner;
            {
                const std::lock_guard lock(mutex_);
                const auto found = streams_.find(data);
                owner = found->second.lock();
                streams_.erase(found);
            }
            if (!owner || pool_ == nullptr) synchronize_context(device_);
            give(reinterpret_cast<CUdeviceptr>(data), owner ? native(*owner) : own_);
        } catch (const std::exception& error) {
            log_error("memory of {} could not be given back: {}", to_string(device_), error.what());
        }
    }

    void trim() {
        synchronize_context(device_);
        if (pool_ == nullptr) return;
        check(driver().cuMemPoolTrimTo(pool_, 0), "cuMemPoolTrimTo");
        // Memory that graphs took for their work is kept apart.
        check(driver().cuDeviceGraphMemTrim(native_device(device_)), "cuDeviceGraphMemTrim");
    }

  private:
    // Other threads may be capturing the stream: what is queued there then would be the graph's.
    CUresult take(CUdeviceptr& data, std::size_t bytes, CUstream stream) const {
        const BesideCaptures beside;
        make_current(device_);
        const std::size_t some = bytes == 0 ? 1 : bytes;
        if (pool_ == nullptr) return driver().cuMemAlloc(&data, some);
        return driver().cuMemAllocFromPoolAsync(&data, some, pool_, stream);
    }

    void give(CUdeviceptr data, CUstream stream) const {
        const BesideCaptures beside;
        make_current(device_);
        if (pool_ == nullptr) {
            check(driver().cuMemFree(data), "cuMemFree");
        } else {
            check(driver().cuMemFreeAsync(data, stream), "cuMemFreeAsync");
        }
    }

    Device device_;
    CUmemoryPool pool_;  // null: the device offers none
    CUstream own_ = nullptr;
    std::mutex mutex_;
    std::unordered_map<std::byte*, std::weak_ptr<detail::StreamBackend>> streams_;
};

// One a device, and new ones for another driver. Never freed: it outlives every static Buffer.
Pool& pool_of(Device device) {
    static std::mutex mutex;
    static std::array<Pool*, 64> pools{};
    static int generation = driver_generation();
    const std::lock_guard lock(mutex);
    if (generation != driver_generation()) pools = {};
    generation = driver_generation();
    Pool*& slot = pools.at(static_cast<std::size_t>(device.index));
    if (slot == nullptr) slot = new Pool(device);
    return *slot;
}

// For every device: no context is made on a GPU that the process does not use, and the current device,
// on which the caller may be about to launch, stays.
std::byte* allocate_pinned(std::size_t bytes) {
    make_some_current();
    void* data = nullptr;
    const CUresult result = driver().cuMemHostAlloc(&data, bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        throw OutOfMemory(
            "the host's memory that can be pinned is used up (ulimit -l, the container's limit)", bytes, 0);
    check(result, "cuMemHostAlloc");
    return static_cast<std::byte*>(data);
}

void free_pinned(std::byte* data) {
    try {
        make_some_current();
        check(driver().cuMemFreeHost(data), "cuMemFreeHost");
    } catch (const std::exception& error) {
        log_error("pinned host memory could not be given back: {}", error.what());
    }
}

// For a process that goes on without a GPU. One that asked for a GPU is refused with the reason.
void say_when_absent() {
    static const bool said = [] {
        if (gpus().all.empty()) log_info("no GPU: {}; everything runs on the CPU", gpus().reason);
        return true;
    }();
    (void)said;
}

}  // namespace

MemoryPool& pool(Device device) {
    return pool_of(device);
}

void keep_freed(Device device) {
    (void)keeping_pool(device);
}

void trim_pool(Device device) {
    pool_of(device).trim();
}

MemoryPool& pinned_pool() {
    if (gpus().all.empty()) {
        say_when_absent();
        return cpu_pool();
    }
    static auto* instance = new detail::CachingPool({allocate_pinned, free_pinned});
    return *instance;
}

std::byte* allocate_lasting(Device device, std::size_t bytes, std::string_view tag) {
    const KeepCurrent scope;
    make_current(device);
    CUdeviceptr data = 0;
    const CUresult result = driver().cuMemAlloc(&data, std::max<std::size_t>(bytes, 1));
    if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(device, bytes, cuda::free_bytes(device), tag);
    check(result, "cuMemAlloc");
    return reinterpret_cast<std::byte*>(data);
}

void free_lasting(Device device, std::byte* data) noexcept {
    try {
        const KeepCurrent scope;
        try {
            synchronize_context(device);  // that cuMemFree waits is nowhere promised
        } catch (const CudaError&) {      // NOLINT: of a GPU that failed there is nothing to wait for
        }
        make_current(device);
        check(driver().cuMemFree(reinterpret_cast<CUdeviceptr>(data)), "cuMemFree");
    } catch (const std::exception& error) {  // the process is ending, as a rule
        log_debug("memory of {} was not given back: {}", to_string(device), error.what());
    }
}

std::uint64_t free_bytes(Device device) {
    make_current(device);
    std::size_t free = 0;
    std::size_t total = 0;
    return driver().cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? free : 0;
}

}  // namespace tandem::cuda
