#include "sync/bench/speed_of_light.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

#include "common/ops/batched_copy.h"

namespace tandem::sync {

SpeedOfLight::SpeedOfLight(comm::Communicator& world, std::size_t bytes, std::size_t most_memory)
    : world_(world),
      copiers_(std::min(world.size(), std::max(1, static_cast<int>(std::thread::hardware_concurrency())))) {
    if (world.rank() >= copiers_) return;
    const auto parts = static_cast<std::size_t>(copiers_);
    const auto rank = static_cast<std::size_t>(world.rank());
    share_ = bytes / parts + (rank < bytes % parts ? 1 : 0);
    const std::size_t memory = std::clamp<std::size_t>(share_, 1, most_memory);
    from_ = Buffer(memory, "speed of light");
    to_ = Buffer(memory, "speed of light");
    std::memset(from_.data(), 1, from_.bytes());
    std::memset(to_.data(), 2, to_.bytes());
}

double SpeedOfLight::measure_ms() {
    Stream here = Stream::make_inline();
    world_.barrier();
    // From the first rank's start to the last one's end, on the clock that all processes share: ranks that
    // copy one after the other would each see the whole machine's bandwidth.
    const auto now = [] { return std::int64_t{std::chrono::steady_clock::now().time_since_epoch().count()}; };
    std::int64_t start = now();
    for (std::size_t done = 0; done < share_; done += from_.bytes()) {
        ops::CopyItem item;
        item.from = from_.span().subspan(0, std::min(from_.bytes(), share_ - done));
        item.to = to_.span().subspan(0, item.from.bytes);
        ops::batched_copy(here, {&item, 1});
    }
    std::int64_t end = now();
    if (from_.bytes() == 0) {  // this rank does not count
        start = std::numeric_limits<std::int64_t>::max();
        end = 0;
    }
    world_.all_reduce({reinterpret_cast<std::byte*>(&start), sizeof(start)}, DType::int64,
                      comm::ReduceOp::min);
    world_.all_reduce({reinterpret_cast<std::byte*>(&end), sizeof(end)}, DType::int64, comm::ReduceOp::max);
    return static_cast<double>(end - start) * 1e-6;
}

}  // namespace tandem::sync
