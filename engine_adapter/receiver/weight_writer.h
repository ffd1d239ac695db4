// Reads and writes an engine's weights, in host memory or on a GPU. Lists of copies are shared by threads
// where they read the CPU's memory, and run on a stream of its own where they read a GPU's. From the CPU's
// memory into a GPU's weights each copy goes through pinned memory, so that every transport that ends in host
// memory works there.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "common/device/export.h"
#include "common/device/stream.h"
#include "common/ops/batched_copy.h"
#include "common/ops/delta.h"
#include "engine_adapter/receiver/bucket_receiver.h"
#include "engine_adapter/receiver/worker_pool.h"

namespace tandem::engine {

// Every call blocks until it is done.
class WeightWriter {
  public:
    // weights: where they lie.
    explicit WeightWriter(Device weights, int threads = 1);

    Device device() const { return device_; }

    // Lists, one at a time. The checksums returned are valid until the next call.
    using Items = std::function<ops::CopyItem(std::size_t)>;
    // From memory on the CPU, or on the weights' GPU once `written` has happened, into the weights. `receiver`: has the
    // bytes on the GPU, where the regions are not mapped. `core`: whose cache may have an item's bytes on the CPU.
    using Core = std::function<int(std::size_t)>;
    const std::vector<ops::Checksum>& write_all(Device from, std::size_t count, const Items& item,
                                                BucketReceiver* receiver = nullptr,
                                                std::span<const SharedEvent> written = {},
                                                const Core& core = {});
    // Of memory on the weights' device; writes nothing (`to.data` is null).
    const std::vector<ops::Checksum>& checksums(std::size_t count, const Items& item);
    // From memory on the weights' GPU into the weights.
    void copy_on_gpu(std::size_t count, const Items& item) { run_on_gpu(count, item); }

    // Single copies, from any thread, for ranges that do not overlap.
    // As ops::batched_copy, from host memory; item.to lies on the device.
    void write(const ops::CopyItem& item);
    // As ops::copy_checksum of an item that reads the device's memory.
    ops::Checksum checksum(const ops::CopyItem& item);
    ops::Checksum checksum(ConstSpan bytes);
    struct Rows {
        std::byte* data = nullptr;  // on the device
        std::size_t stride = 0;     // bytes from row to row, of more than one
        std::int64_t count = 0;
        std::int64_t elements = 0;  // of a row
        std::size_t width = 0;      // bytes of an element
        std::size_t row_bytes() const { return static_cast<std::size_t>(elements) * width; }
    };
    // As ops::delta_apply.
    void apply(ops::DeltaCodec codec, ConstSpan encoded, const Rows& rows);

    // Runs jobs on the CPU's threads.
    void share(std::size_t count, const std::function<void(std::size_t)>& job, const Core& core = {}) {
        core ? workers_.run_on(core, count, job) : workers_.run(count, job);
    }
    // Job i on cores[i] for as long as it takes; all at once, where can_relay says so. meanwhile: as of WorkerPool::run_on.
    bool can_relay(std::span<const int> cores);
    void relay(std::span<const int> cores, const std::function<void(std::size_t)>& job,
               const std::function<void()>& meanwhile);

  private:
    const std::vector<ops::Checksum>& run_on_gpu(std::size_t count, const Items& item,
                                                 BucketReceiver* receiver = nullptr);
    void finish(BucketReceiver& receiver);
    enum class Direction { download, upload };
    // Between the rows and `packed`, where they follow each other.
    void move(const Rows& rows, Span packed, Direction direction);

    Device device_;
    WorkerPool workers_;
    std::mutex mutex_;                  // the stream's, for single copies
    std::optional<Stream> stream_;      // none: host memory
    std::vector<ops::CopyItem> items_;  // scratch
    std::vector<ops::Checksum> found_;
};

}  // namespace tandem::engine
