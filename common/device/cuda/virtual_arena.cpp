// Virtual arenas of a real GPU: reserved addresses, onto which cuMemCreate's memory is mapped.
#include "common/device/cuda/backend.h"

#include <cstdint>

#include "common/align.h"
#include "common/device/cuda/capture.h"
#include "common/device/cuda/driver.h"
#include "common/device/cuda/memory.h"
#include "common/device/devices.h"
#include "common/device/export.h"
#include "common/device/memory_stats.h"
#include "common/log.h"

namespace tandem::cuda {
namespace {

bool offers(Device device, CUdevice_attribute what) {
    int offered = 0;
    check(driver().cuDeviceGetAttribute(&offered, what, native_device(device)), "cuDeviceGetAttribute");
    return offered != 0;
}

CUmemLocation location_of(Device device) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device.index;
    return location;
}

class Arena final : public VirtualArena::Impl {
  public:
    Arena(Device device, std::size_t bytes, std::string_view tag, bool pages)
        : device_(device), bytes_(bytes), tag_(detail::memory_tag(tag)), tag_name_(tag) {
        reserve();
        if (!pages) return;
        try {
            restore_pages();
        } catch (...) {
            give_addresses_back();
            throw;
        }
    }
    // Another process's, whose tag counts it.
    Arena(Device device, std::size_t bytes, int fd) : device_(device), bytes_(bytes) {
        reserve();
        // The driver takes the descriptor's number for a pointer.
        void* number = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
        CUresult result = driver().cuMemImportFromShareableHandle(&pages_, number,
                                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        if (result == CUDA_SUCCESS) {
            result = map_pages();
            if (result != CUDA_SUCCESS) (void)driver().cuMemRelease(pages_);
        }
        if (result == CUDA_SUCCESS) {
            backed_ = true;
            return;
        }
        give_addresses_back();
        throw IpcRefused(
            fmt::format("descriptor {} cannot be opened as {} bytes on {}: it is no memory of this GPU's "
                        "driver, was exported with another size, or lies on a GPU without peer access ({})",
                        fd, bytes, to_string(device), error_text(result)));
    }
    ~Arena() override {
        try {
            drop();
        } catch (const std::exception& error) {
            log_error("a virtual arena of {}: {}", to_string(device_), error.what());
        }
        give_addresses_back();
    }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    Device device() const override { return device_; }
    Span span() const override { return {reinterpret_cast<std::byte*>(address_), bytes_}; }
    bool has_pages() const override { return backed_; }

    void release_pages() override {
        require(tag_ >= 0, "the pages of an arena on {} are another process's to give back",
                to_string(device_));
        drop();
    }

    void restore_pages() override {
        if (backed_) return;
        make_current(device_);
        const CUmemAllocationProp properties = this->properties();
        CUresult result = driver().cuMemCreate(&pages_, reserved_, &properties, 0);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            trim_pool(device_);
            result = driver().cuMemCreate(&pages_, reserved_, &properties, 0);
        }
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            throw OutOfMemory(device_, reserved_, cuda::free_bytes(device_), tag_name_);
        check(result, "cuMemCreate");
        result = map_pages();
        if (result != CUDA_SUCCESS) (void)driver().cuMemRelease(pages_);
        check(result, "cuMemMap");
        backed_ = true;
        detail::count_allocation(tag_, bytes_);
    }

    int export_fd() const override {
        if (!backed_) throw IpcRefused("an arena without pages cannot be shared: restore_pages() first");
        make_current(device_);
        int fd = -1;
        const CUresult result =
            driver().cuMemExportToShareableHandle(&fd, pages_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (result == CUDA_SUCCESS) return fd;
        throw IpcRefused(
            fmt::format("memory of {} cannot be shared by a file descriptor: {}. Use an export arena "
                        "(CUDA IPC)",
                        to_string(device_), error_text(result)));
    }

  private:
    CUmemAllocationProp properties() const {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = location_of(device_);
        if (offers(device_, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
            properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        return properties;
    }

    void reserve() {
        make_current(device_);
        if (!offers(device_, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
            throw DeviceUnavailable(to_string(device_) +
                                    " has no virtual memory management (a vGPU, or WSL): its "
                                    "memory cannot be given back while its address stays");
        const CUmemAllocationProp properties = this->properties();
        std::size_t granule = 0;
        check(driver().cuMemGetAllocationGranularity(&granule, &properties,
                                                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
              "cuMemGetAllocationGranularity");
        reserved_ = round_up(bytes_, granule);
        check(driver().cuMemAddressReserve(&address_, reserved_, 0, 0, 0), "cuMemAddressReserve");
    }

    void give_addresses_back() noexcept {
        const CUresult result = driver().cuMemAddressFree(address_, reserved_);
        if (result != CUDA_SUCCESS) log_error("cuMemAddressFree on {} failed", to_string(device_));
    }

    CUresult map_pages() {
        const CUresult result = driver().cuMemMap(address_, reserved_, 0, pages_, 0);
        if (result != CUDA_SUCCESS) return result;
        CUmemAccessDesc access{};
        access.location = location_of(device_);
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        const CUresult allowed = driver().cuMemSetAccess(address_, reserved_, &access, 1);
        if (allowed != CUDA_SUCCESS) (void)driver().cuMemUnmap(address_, reserved_);
        return allowed;
    }

    void drop() {
        if (!backed_) return;
        synchronize_context(device_);  // the pages are not in use any more
        check(driver().cuMemUnmap(address_, reserved_), "cuMemUnmap");
        check(driver().cuMemRelease(pages_), "cuMemRelease");
        backed_ = false;
        if (tag_ >= 0) detail::count_release(tag_, bytes_);
    }

    Device device_;
    std::size_t bytes_;
    int tag_ = -1;  // -1: another process's
    std::string tag_name_;
    std::size_t reserved_ = 0;  // bytes_ in whole granules
    CUdeviceptr address_ = 0;
    CUmemGenericAllocationHandle pages_ = 0;
    bool backed_ = false;
};

}  // namespace

std::shared_ptr<VirtualArena::Impl> make_virtual_arena(Device device, std::size_t bytes, std::string_view tag,
                                                       bool pages) {
    return std::make_shared<Arena>(device, bytes, tag, pages);
}

std::shared_ptr<VirtualArena::Impl> open_virtual_arena(Device device, int fd, std::size_t bytes) {
    return std::make_shared<Arena>(device, bytes, fd);
}

}  // namespace tandem::cuda
