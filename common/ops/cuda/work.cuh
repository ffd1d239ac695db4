// The work of one op on a stream: kernels, device memory for as long as they run, and the host's spans on
// their way there and back. Nothing here waits for the device except synchronize.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/device/stream.h"
#include "common/ops/cuda/kept_tables.h"
#include "common/ops/cuda/portable.cuh"

namespace tandem::ops::TANDEM_KERNELS {

// A block's, where a kernel does not ask for another number.
inline constexpr int kThreads = 256;

// Blocks that keep any GPU busy in a loop over items, and on which no result depends.
inline constexpr std::int64_t kGridBlocks = 132 * 16;

// Items that 32 bits count, a grid further included, and that shared::Divider divides.
inline constexpr std::int64_t kDividends = (std::int64_t{1} << 31) - (std::int64_t{1} << 22);

inline std::int64_t ceil_div(std::int64_t value, std::int64_t by) {
    return (value + by - 1) / by;
}

// Memory on a stream's device that outlives the stream's work: what kernels keep between calls. Freeing it
// waits for the device.
class DeviceMemory {
  public:
    DeviceMemory(Stream& stream, std::size_t bytes);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    std::byte* data() const { return data_; }

  private:
    int device_;
    std::byte* data_ = nullptr;
};

int device_key(Stream& stream);  // one of the device, for caches

class Work {
  public:
    Work(Stream& stream, const char* op);
    ~Work();  // gives the scratch back, in the order of the stream
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

    // No blocks: nothing is launched.
    template <typename... P, typename... A>
    void launch(void (*kernel)(P...), std::int64_t blocks, int threads, std::size_t shared_bytes,
                A&&... args) {
        if (blocks <= 0) return;
        std::tuple<std::decay_t<P>...> values(std::forward<A>(args)...);
#if defined(TANDEM_KERNELS_ON_HOST)
        fibers::run_blocks(blocks, threads, shared_bytes, [&] { std::apply(kernel, values); });
#else
        std::apply(
            [&](auto&... value) {
                void* pointers[] = {const_cast<void*>(static_cast<const void*>(&value))...};
                launch_raw(reinterpret_cast<const void*>(kernel), blocks, threads, shared_bytes, pointers);
            },
            values);
#endif
    }

    std::byte* scratch(std::size_t bytes);  // contents undefined; aligned to 256 bytes
    template <typename T>
    T* scratch(std::int64_t count) {
        return reinterpret_cast<T*>(scratch(static_cast<std::size_t>(count) * sizeof(T)));
    }
    // The span is read before this returns.
    template <typename T>
    T* upload(std::span<const T> values) {
        T* const to = scratch<T>(static_cast<std::int64_t>(values.size()));
        upload(values.data(), to, values.size_bytes());
        return to;
    }
    template <typename T>
    T* upload(const std::vector<T>& values) {
        return upload(std::span<const T>(values));
    }
    // The same for a table that later ops are likely to bring again, as all layers of a pass do: uploaded once
    // while the stream keeps it (kept_tables.h). Valid for this Work's launches.
    template <typename T>
    const T* table(std::span<const T> values) {
        static_assert(std::has_unique_object_representations_v<T>, "equal tables must be equal bytes");
        return reinterpret_cast<const T*>(kept(std::as_bytes(values)));
    }
    template <typename T>
    const T* table(const std::vector<T>& values) {
        return table(std::span<const T>(values));
    }
    // The span is written when the stream is synchronized past this, and must be there until then.
    template <typename T>
    void download(const T* from, std::span<T> to) {
        download(from, to.size_bytes(), [to](const std::byte* bytes) {
            if (!to.empty()) std::memcpy(to.data(), bytes, to.size_bytes());
        });
    }
    // Calls `take` with a copy in host memory when the stream is synchronized past this, on the thread that
    // waits (Stream::call_host). `take` must not call CUDA.
    void download(const void* from, std::size_t bytes, std::function<void(const std::byte*)> take);

    void clear(void* data, std::size_t bytes);
    void copy(const void* from, void* to, std::size_t bytes);  // on the device; must not overlap
    void synchronize();

    void upload(const void* from, void* to, std::size_t bytes);

  private:
    std::byte* allocate(std::size_t bytes);  // in the stream's order
    const std::byte* kept(std::span<const std::byte> table);
    void launch_raw(const void* kernel, std::int64_t blocks, int threads, std::size_t shared_bytes,
                    void** arguments);

    Stream& stream_;
    const char* op_;
#if !defined(TANDEM_KERNELS_ON_HOST)
    cudaStream_t native_;
#endif
    std::vector<std::byte*> scratch_;
    std::vector<KeptTables::Memory> tables_;
};

}  // namespace tandem::ops::TANDEM_KERNELS
