// A pool of host memory that keeps freed blocks by size class: first touch of fresh memory, and locking its
// pages for a GPU, are what is slow. Under the address sanitizer every block is fresh and exact, so that
// overruns are seen.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/align.h"
#include "common/device/memory.h"

namespace tandem::detail {

class CachingPool final : public MemoryPool {
  public:
    struct Source {
        std::function<std::byte*(std::size_t)> allocate;  // aligned to 64 bytes at least; throws OutOfMemory
        std::function<void(std::byte*)> free;             // never throws
    };
    explicit CachingPool(Source source) : source_(std::move(source)) {}

    Device device() const override { return {}; }

    std::byte* allocate(std::size_t bytes) override {
#if defined(TANDEM_SANITIZE_address)
        return source_.allocate(std::max<std::size_t>(bytes, 1));
#else
        const std::size_t rounded = size_class(bytes);
        {
            const std::lock_guard lock(mutex_);
            auto& blocks = free_[rounded];
            if (!blocks.empty()) {
                std::byte* data = blocks.back();
                blocks.pop_back();
                return data;
            }
        }
        return source_.allocate(rounded);
#endif
    }

    void release(std::byte* data, std::size_t bytes) noexcept override {
#if defined(TANDEM_SANITIZE_address)
        (void)bytes;
        source_.free(data);
#else
        const std::lock_guard lock(mutex_);
        free_[size_class(bytes)].push_back(data);
#endif
    }

    // Gives what is kept back. Returns its bytes.
    std::size_t trim() {
        const std::lock_guard lock(mutex_);
        std::size_t bytes = 0;
        for (auto& [size, blocks] : free_) {
            for (std::byte* block : blocks) source_.free(block);
            bytes += size * blocks.size();
        }
        free_.clear();
        return bytes;
    }

  private:
    // Eight size classes to the doubling, so that a freed block fits the next request of about its size.
    static std::size_t size_class(std::size_t bytes) {
        constexpr std::size_t kAlignment = 64;
        const std::size_t wanted = std::max(bytes, kAlignment);
        const std::size_t step = std::max(kAlignment, std::bit_floor(wanted) / 8);
        return round_up(wanted, step);
    }

    Source source_;
    std::mutex mutex_;
    std::unordered_map<std::size_t, std::vector<std::byte*>> free_;
};

}  // namespace tandem::detail
