#include "sync/cost/cores.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <new>

#include "common/align.h"
#include "common/cores.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLine = 64;
constexpr std::uint32_t kBatches = 8, kTrips = 16;
constexpr std::chrono::microseconds kPatience{300};
constexpr std::array<std::string_view, kCoresStates> kNames = {"unknown", "share a cache", "apart"};

}  // namespace

std::string_view cores_name(Cores cores) {
    return kNames[static_cast<std::size_t>(cores)];
}

Cores cores_at(std::optional<double> nanoseconds) {
    if (!nanoseconds) return Cores::unknown;
    return *nanoseconds < kApartNs ? Cores::share_cache : Cores::apart;
}

CoreDistance::CoreDistance(comm::Communicator& world) : rank_(world.rank()), cores_(usable_cores()) {
    if (world.size() < 2) return;
    const Span shared = world.shared_memory().memory;
    std::int64_t offset = -1;
    if (rank_ == 0 && shared.bytes > 0) {
        memory_ = Buffer(3 * kLine, "core distance", world.memory());
        const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
        std::byte* const lines = memory_.data() + (round_up(at, kLine) - at);
        if (lines >= shared.data && lines + 2 * kLine <= shared.data + shared.bytes) {
            new (lines) Word(0);
            new (lines + kLine) Word(0);
            offset = lines - shared.data;
        }
    }
    world.broadcast({reinterpret_cast<std::byte*>(&offset), sizeof(offset)}, 0);
    if (offset < 0 || rank_ > 1 || static_cast<std::size_t>(offset) + 2 * kLine > shared.bytes) return;
    const auto word = [&](std::size_t line) {
        return std::launder(reinterpret_cast<Word*>(shared.data + offset + line * kLine));
    };
    ours_ = word(rank_ == 0 ? 0 : 1);
    theirs_ = word(rank_ == 0 ? 1 : 0);
}

bool CoreDistance::reaches(const Word& word, std::uint32_t value) {
    const auto until = Clock::now() + kPatience;
    do {
        for (int i = 0; i < 64; ++i) {
            if (static_cast<std::int32_t>(word.load(std::memory_order_acquire) - value) >= 0) return true;
        }
    } while (Clock::now() < until);
    return false;
}

std::optional<double> CoreDistance::measure() {
    if (ours_ == nullptr) return std::nullopt;
    const OnCore stay(cores_.size() == 2 ? cores_[static_cast<std::size_t>(rank_)] : -1);
    double least = std::numeric_limits<double>::infinity();
    std::uint32_t value = round_;
    round_ += kBatches * kTrips;  // also where it is cut short: the other rank counts on
    const auto end = Clock::now() + kPatience;
    for (std::uint32_t batch = 0; batch < kBatches; ++batch) {
        const auto start = Clock::now();
        if (start > end) return std::nullopt;
        for (std::uint32_t trip = 0; trip < kTrips; ++trip) {
            ++value;
            if (rank_ == 0) ours_->store(value, std::memory_order_release);
            if (!reaches(*theirs_, value)) return std::nullopt;
            if (rank_ != 0) ours_->store(value, std::memory_order_release);
        }
        const std::chrono::duration<double, std::nano> took = Clock::now() - start;
        least = std::min(least, took.count() / (2 * kTrips));
    }
    if (rank_ != 0) return std::nullopt;
    return least;
}

}  // namespace tandem::sync
