#include "sync/bench/speed_of_light.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "common/ops/batched_copy.h"

namespace tandem::sync {

SpeedOfLight::SpeedOfLight(comm::Communicator& world, std::size_t bytes)
    : world_(world),
      copiers_(std::min(world.size(), std::max(1, static_cast<int>(std::thread::hardware_concurrency())))) {
    if (world.rank() >= copiers_) return;
    const auto parts = static_cast<std::size_t>(copiers_);
    const auto rank = static_cast<std::size_t>(world.rank());
    const std::size_t share = bytes / parts + (rank < bytes % parts ? 1 : 0);
    from_ = Buffer(std::max<std::size_t>(share, 1), "speed of light");
    to_ = Buffer(std::max<std::size_t>(share, 1), "speed of light");
    std::memset(from_.data(), 1, from_.bytes());
    std::memset(to_.data(), 2, to_.bytes());
}

double SpeedOfLight::measure_ms() {
    Stream here = Stream::make_inline();
    world_.barrier();
    const auto start = std::chrono::steady_clock::now();
    if (from_.bytes() > 0) {
        ops::CopyItem item;
        item.from = from_.span();
        item.to = to_.span();
        ops::batched_copy(here, {&item, 1});
    }
    // Between the start and the end of the slowest, without the barriers' own cost.
    std::int64_t ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    world_.all_reduce({reinterpret_cast<std::byte*>(&ns), sizeof(ns)}, DType::int64, comm::ReduceOp::max);
    return static_cast<double>(ns) * 1e-6;
}

}  // namespace tandem::sync
