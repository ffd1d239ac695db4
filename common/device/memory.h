// Buffers and the pools that hand out their memory. Statistics are kept per tag, over all pools of the
// process, so that a test can assert what a phase really used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/device/device.h"
#include "common/error.h"

namespace tandem {

// Not enough memory left. Names what is full, asked and free bytes; what a Buffer throws also names its tag.
class OutOfMemory : public Error {
  public:
    OutOfMemory(Device device, std::uint64_t asked_bytes, std::uint64_t free_bytes,
                std::string_view tag = "");
    // `what_is_full`: "pool 'x' is full".
    OutOfMemory(const std::string& what_is_full, std::uint64_t asked_bytes, std::uint64_t free_bytes,
                std::string_view tag = "");
    OutOfMemory with_tag(std::string_view tag) const {
        return {what_is_full_, asked_bytes_, free_bytes_, tag};
    }
    std::uint64_t asked_bytes() const { return asked_bytes_; }
    std::uint64_t free_bytes() const { return free_bytes_; }

  private:
    std::string what_is_full_;
    std::uint64_t asked_bytes_;
    std::uint64_t free_bytes_;
};

struct MemoryStats {
    std::uint64_t live_bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t allocations = 0;  // calls so far
};

// Thread-safe. Alignment is at least 64 bytes. Contents of a fresh block are undefined.
class MemoryPool {
  public:
    virtual ~MemoryPool() = default;
    virtual Device device() const = 0;
    virtual std::byte* allocate(std::size_t bytes) = 0;  // throws OutOfMemory
    virtual void release(std::byte* data, std::size_t bytes) noexcept = 0;
};

// The process's pool of private CPU memory. Freed blocks are kept and reused: first touch of fresh memory is
// what is slow.
MemoryPool& cpu_pool();

// A GPU's memory for work, ordered by its compute stream (Stream::make_compute): a block may be used as soon
// as it is there by that stream, and by another one that waits for it; it goes back when the compute stream
// gets to where the host released it, so that stream must first wait for others that still use the block. On
// the CPU it is cpu_pool(). Throws DeviceUnavailable.
MemoryPool& device_pool(Device device);

// Gives what device_pool() keeps for later back to the device, so that another process can have it: waits for
// the device's work first.
void trim_device_pool(Device device);

// Host memory that a GPU copies from and to at full speed and asynchronously. Without a GPU: cpu_pool().
MemoryPool& pinned_pool();

// A pool over one fixed range (best fit, coalescing free list). The range is borrowed and must outlive the
// pool. `first_use`, where there is one, is called with the huge pages (huge_pages.h) of a large block, once for each.
std::unique_ptr<MemoryPool> make_range_pool(Span range, std::string name, Device device = {},
                                            void (*first_use)(Span) = nullptr);

MemoryStats memory_stats(std::string_view tag);
std::map<std::string, MemoryStats> all_memory_stats();
void reset_memory_peaks();  // peak := live, for every tag, the sum, and in every phase

// The most that was live at one time, over all tags, and what it was made of: not the sum of the tags' peaks.
struct MemoryPeak {
    std::uint64_t bytes = 0;
    std::map<std::string, std::uint64_t> by_tag;
};
MemoryPeak memory_peak();                                // of the process
std::map<std::string, MemoryPeak> memory_phase_peaks();  // of each phase that has run

// From here on the process is in the phase `name`, whose peak starts with what is live now. One phase at a
// time: what runs inside another one belongs to the outermost.
class MemoryPhase {
  public:
    explicit MemoryPhase(std::string_view name);
    ~MemoryPhase();
    MemoryPhase(const MemoryPhase&) = delete;
    MemoryPhase& operator=(const MemoryPhase&) = delete;
};

// Gives the blocks that cpu_pool() keeps for later back to the system. Returns their bytes.
std::size_t trim_cpu_pool();

// Move-only owner of a block of a pool. The pool must outlive it.
class Buffer {
  public:
    Buffer() = default;
    Buffer(std::size_t bytes, std::string_view tag, MemoryPool& pool = cpu_pool());
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer();

    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    Span span() const { return {data_, bytes_}; }
    Device device() const { return pool_ == nullptr ? Device{} : pool_->device(); }

  private:
    void free() noexcept;
    MemoryPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    int tag_ = -1;
};

}  // namespace tandem
