// Runs lists of copies into an engine's weights: from the CPU's memory by threads that share a list, from a
// GPU's by a stream of its own.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "common/device/export.h"
#include "common/ops/batched_copy.h"
#include "engine_adapter/receiver/bucket_receiver.h"
#include "engine_adapter/receiver/link.h"
#include "engine_adapter/receiver/weight_access.h"
#include "engine_adapter/receiver/worker_pool.h"

namespace tandem::engine {

class Copier {
  public:
    // weights: where they lie. link_bytes_per_s: what copy() takes its bytes over; 0: no limit.
    Copier(Device weights, int threads, double link_bytes_per_s);

    Device device() const { return device_; }
    // On the GPU, what is copied next comes behind these.
    void wait_for(const std::vector<SharedEvent>& events);
    using Items = std::function<ops::CopyItem(std::size_t)>;
    // All return when everything is done. The checksums are valid until the next call.
    // From memory on the CPU, or on the weights' GPU, into the weights. `receiver`: where they come from on
    // the GPU, if not from mapped regions.
    const std::vector<ops::Checksum>& copy(Device from, std::size_t count, const Items& item,
                                           BucketReceiver* receiver = nullptr);
    // Checksums of memory on the weights' device; writes nothing (`to.data` is null).
    const std::vector<ops::Checksum>& read(std::size_t count, const Items& item);
    // From memory on the weights' GPU into the weights, past the link.
    void take_home(std::size_t count, const Items& item) { run_on_gpu(count, item, false); }

    // Jobs of the CPU's threads.
    void share(std::size_t count, const std::function<void(std::size_t)>& job) { workers_.run(count, job); }
    WeightAccess& access() { return access_; }
    Link& link() { return link_; }

  private:
    const std::vector<ops::Checksum>& run_on_gpu(std::size_t count, const Items& item, bool linked,
                                                 BucketReceiver* receiver = nullptr);
    void take(std::size_t bytes, BucketReceiver* receiver);  // over the link
    void finish(BucketReceiver& receiver);

    Device device_;
    WeightAccess access_;
    WorkerPool workers_;
    Link link_;
    std::optional<Stream> stream_;      // of the weights' GPU
    std::vector<ops::CopyItem> items_;  // scratch
    std::vector<ops::Checksum> found_;
};

}  // namespace tandem::engine
