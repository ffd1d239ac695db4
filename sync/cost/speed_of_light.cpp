#include "sync/cost/speed_of_light.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

#include "common/ops/batched_copy.h"

namespace tandem::sync {

SpeedOfLight::SpeedOfLight(comm::Communicator& world, std::size_t bytes, Device device,
                           std::size_t most_memory)
    : world_(world) {
    const int copiers =
        device.type == DeviceType::cuda
            ? 1
            : std::min(world.size(), std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    if (world.rank() >= copiers) return;
    const auto parts = static_cast<std::size_t>(copiers);
    const auto rank = static_cast<std::size_t>(world.rank());
    share_ = bytes / parts + (rank < bytes % parts ? 1 : 0);
    const std::size_t memory = std::clamp<std::size_t>(share_, 1, most_memory);
    if (device.type == DeviceType::cuda) {
        stream_.emplace(Stream::make(device, "speed of light"));
        gpu_from_ = ExportArena::create(device, memory, "speed of light");
        gpu_to_ = ExportArena::create(device, memory, "speed of light");
        source_ = gpu_from_.span();
        target_ = gpu_to_.span();
        fill_zero(*stream_, source_);
        fill_zero(*stream_, target_);
        stream_->synchronize();
        return;
    }
    from_ = Buffer(memory, "speed of light");
    to_ = Buffer(memory, "speed of light");
    std::memset(from_.data(), 1, from_.bytes());
    std::memset(to_.data(), 2, to_.bytes());
    source_ = from_.span();
    target_ = to_.span();
}

double SpeedOfLight::measure_ms() {
    Stream here = Stream::make_inline();
    world_.barrier();
    // From the first rank's start to the last one's end, on the clock that all processes share: ranks that
    // copy one after the other would each see the whole machine's bandwidth.
    const auto now = [] { return std::int64_t{std::chrono::steady_clock::now().time_since_epoch().count()}; };
    std::int64_t start = now();
    for (std::size_t done = 0; done < share_; done += source_.bytes) {
        ops::CopyItem item;
        item.from = source_.subspan(0, std::min(source_.bytes, share_ - done));
        item.to = target_.subspan(0, item.from.bytes);
        if (stream_) {
            copy(*stream_, item.from, item.to);
        } else {
            ops::batched_copy(here, {&item, 1});
        }
    }
    if (stream_) stream_->synchronize();
    std::int64_t end = now();
    if (source_.bytes == 0) {  // this rank does not count
        start = std::numeric_limits<std::int64_t>::max();
        end = 0;
    }
    world_.all_reduce({reinterpret_cast<std::byte*>(&start), sizeof(start)}, DType::int64,
                      comm::ReduceOp::min);
    world_.all_reduce({reinterpret_cast<std::byte*>(&end), sizeof(end)}, DType::int64, comm::ReduceOp::max);
    return static_cast<double>(end - start) * 1e-6;
}

}  // namespace tandem::sync
