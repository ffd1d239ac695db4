// CUDA IPC: plain cuMemAlloc memory and events under handles of 64 bytes.
#include "common/device/cuda/backend.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "common/align.h"
#include "common/device/cuda/capture.h"
#include "common/device/cuda/driver.h"
#include "common/device/cuda/memory.h"
#include "common/device/cuda/native.h"
#include "common/device/ipc_refusal.h"
#include "common/device/memory_stats.h"
#include "common/log.h"

namespace tandem::cuda {
namespace {

// A handle is of the whole piece that the driver cut an allocation from: whole pieces share nothing by
// accident.
constexpr std::size_t kGranule = std::size_t{2} << 20;

CUdeviceptr address(const std::byte* data) {
    return reinterpret_cast<CUdeviceptr>(data);
}

// A handle type of the driver's to the bytes that travel, and back.
template <typename T>
IpcHandle to_bytes(const T& native) {
    static_assert(sizeof native == sizeof(IpcHandle));
    IpcHandle handle{};
    std::memcpy(handle.data(), &native, sizeof native);
    return handle;
}

template <typename T>
T from_bytes(const IpcHandle& handle) {
    static_assert(sizeof(T) == sizeof handle);
    T native{};
    std::memcpy(&native, handle.data(), sizeof native);
    return native;
}

IpcHandle memory_handle(Device device, const std::byte* data) {
    CUipcMemHandle native{};
    const CUresult result = driver().cuIpcGetMemHandle(&native, address(data));
    if (result == CUDA_SUCCESS) return to_bytes(native);
    throw detail::not_shareable(device, fmt::format("cuIpcGetMemHandle answered {}", error_text(result)));
}

[[noreturn]] void refuse_opening(Device device, const char* what, CUresult result) {
    using detail::NotOpened;
    NotOpened why = NotOpened::gone_or_foreign;
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_DEVICE_UNAVAILABLE) why = NotOpened::own;
    if (result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED || result == CUDA_ERROR_TOO_MANY_PEERS)
        why = NotOpened::no_peer_access;
    throw detail::not_opened(device, what, why, error_text(result));
}

// --- memory: lent, opened

class Arena final : public ExportArena::Impl {
  public:
    Arena(Device device, std::size_t bytes, std::string_view tag)
        : device_(device), bytes_(bytes), tag_(tag.empty() ? -1 : detail::memory_tag(tag)) {
        make_current(device);
        const std::size_t rounded = round_up(bytes, kGranule);
        CUdeviceptr data = 0;
        CUresult result = driver().cuMemAlloc(&data, rounded);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            trim_pool(device);
            result = driver().cuMemAlloc(&data, rounded);
        }
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            throw OutOfMemory(device, rounded, cuda::free_bytes(device), tag);
        check(result, "cuMemAlloc");
        data_ = reinterpret_cast<std::byte*>(data);
        if (tag_ >= 0) detail::count_allocation(tag_, bytes_);
    }
    ~Arena() override {
        if (tag_ >= 0) detail::count_release(tag_, bytes_);
        try {
            synchronize_context(device_);  // that cuMemFree waits is nowhere promised
            check(driver().cuMemFree(address(data_)), "cuMemFree");
        } catch (const std::exception& error) {
            log_error("an arena of {}: {}", to_string(device_), error.what());
        }
    }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    Device device() const override { return device_; }
    Span span() const override { return {data_, bytes_}; }
    IpcHandle handle() const override {
        make_current(device_);
        return memory_handle(device_, data_);
    }

  private:
    Device device_;
    std::byte* data_ = nullptr;
    std::size_t bytes_;
    int tag_;
};

class Opened final : public OpenedArena::Impl {
  public:
    Opened(Device device, const IpcHandle& handle, std::size_t bytes) : device_(device), bytes_(bytes) {
        make_current(device);
        CUdeviceptr data = 0;
        const CUresult result = driver().cuIpcOpenMemHandle(&data, from_bytes<CUipcMemHandle>(handle),
                                                            CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        if (result != CUDA_SUCCESS) refuse_opening(device, "memory", result);
        data_ = reinterpret_cast<std::byte*>(data);
        CUdeviceptr base = 0;
        std::size_t held = 0;
        if (driver().cuMemGetAddressRange(&base, &held, data) == CUDA_SUCCESS && base + held < data + bytes) {
            close();
            throw IpcRefused(fmt::format("{} bytes were exported, {} asked for", base + held - data, bytes));
        }
    }
    ~Opened() override { close(); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

    Device device() const override { return device_; }
    Span span() const override { return {data_, bytes_}; }

  private:
    // Unmaps. The memory is the exporter's, which frees it.
    void close() noexcept {
        try {
            synchronize_context(device_);  // the mapping is not read any more
            check(driver().cuIpcCloseMemHandle(address(data_)), "cuIpcCloseMemHandle");
        } catch (const std::exception& error) {
            log_error("another process's memory on {}: {}", to_string(device_), error.what());
        }
    }

    Device device_;
    std::byte* data_ = nullptr;
    std::size_t bytes_;
};

// --- events

class Shared final : public SharedEvent::Impl {
  public:
    explicit Shared(Device device) : device_(device) {
        make_current(device);
        check(driver().cuEventCreate(&event_, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
              "cuEventCreate");
    }
    Shared(Device device, const IpcHandle& handle) : device_(device) {
        make_current(device);
        const CUresult result = driver().cuIpcOpenEventHandle(&event_, from_bytes<CUipcEventHandle>(handle));
        if (result != CUDA_SUCCESS) refuse_opening(device, "an event", result);
    }
    ~Shared() override {
        try {
            make_current(device_);
            check(driver().cuEventDestroy(event_), "cuEventDestroy");
        } catch (const std::exception& error) {
            log_error("a shared event of {}: {}", to_string(device_), error.what());
        }
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

    IpcHandle handle() const override {
        make_current(device_);
        CUipcEventHandle native{};
        const CUresult result = driver().cuIpcGetEventHandle(&native, event_);
        if (result == CUDA_SUCCESS) return to_bytes(native);
        throw IpcRefused(fmt::format("an event of {} cannot be shared: cuIpcGetEventHandle answered {}",
                                     to_string(device_), error_text(result)));
    }

    void record(Stream& stream) override {
        check(driver().cuEventRecord(event_, reinterpret_cast<CUstream>(native(stream))), "cuEventRecord");
    }

    void wait(Stream& stream) override {
        check(driver().cuStreamWaitEvent(reinterpret_cast<CUstream>(native(stream)), event_,
                                         CU_EVENT_WAIT_DEFAULT),
              "cuStreamWaitEvent");
    }

    void wait(Deadline deadline) override {
        make_current(device_);
        for (;;) {
            const CUresult result = driver().cuEventQuery(event_);
            if (result != CUDA_ERROR_NOT_READY) return check(result, "cuEventQuery of a shared event");
            if (deadline.passed())
                throw DeadlineExceeded("another process", "shared event", "not reached within the deadline");
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    }

  private:
    Device device_;
    CUevent event_ = nullptr;
};

}  // namespace

// --- the functions of the backend

std::shared_ptr<ExportArena::Impl> make_export_arena(Device device, std::size_t bytes, std::string_view tag) {
    return std::make_shared<Arena>(device, bytes, tag);
}

std::shared_ptr<OpenedArena::Impl> open_arena(Device device, const IpcHandle& handle, std::size_t bytes) {
    return std::make_shared<Opened>(device, handle, bytes);
}

ExportedRange export_range(Device device, ConstSpan range) {
    make_current(device);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    const CUresult result = driver().cuMemGetAddressRange(&base, &bytes, address(range.data));
    if (result != CUDA_SUCCESS)
        throw IpcRefused(fmt::format("{} bytes cannot be shared: {} knows no allocation there ({})",
                                     range.bytes, to_string(device), error_text(result)));
    const auto offset = static_cast<std::size_t>(address(range.data) - base);
    if (offset + range.bytes > bytes)
        throw IpcRefused(
            fmt::format("{} bytes cannot be shared as one range: their allocation on {} ends after {}",
                        range.bytes, to_string(device), bytes - offset));
    return {memory_handle(device, reinterpret_cast<const std::byte*>(base)), offset, bytes};
}

std::shared_ptr<SharedEvent::Impl> make_shared_event(Device device) {
    return std::make_shared<Shared>(device);
}

std::shared_ptr<SharedEvent::Impl> open_shared_event(Device device, const IpcHandle& handle) {
    return std::make_shared<Shared>(device, handle);
}

}  // namespace tandem::cuda
