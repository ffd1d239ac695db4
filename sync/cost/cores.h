// Whether two ranks' cores share a cache. A virtual machine whose cores the host moves knows one answer in one minute
// and another in the next, and copies at other rates in each.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/comm/communicator.h"
#include "common/device/memory.h"

namespace tandem::sync {

enum class Cores : std::uint8_t { unknown, share_cache, apart };
constexpr std::size_t kCoresStates = 3;
std::string_view cores_name(Cores cores);  // "unknown", "share a cache", "apart"

// As measure() has it, a line takes 25 to 50 ns within a cache of an EPYC, and 240 between two.
constexpr double kApartNs = 100;
Cores cores_at(std::optional<double> nanoseconds);

// Passes a line of shared memory to and fro between ranks 0 and 1. Where there are two cores each goes to its own: more ranks
// might have them on one.
class CoreDistance {
  public:
    explicit CoreDistance(comm::Communicator& world);  // collective
    // Right behind a rendezvous of ranks 0 and 1, which both call it; others need not. Nanoseconds one way, on rank 0.
    // Nothing: ranks that share no memory, or that did not run at the same time within 0.3 ms, which is all it takes.
    std::optional<double> measure();

  private:
    using Word = std::atomic<std::uint32_t>;
    static bool reaches(const Word& word, std::uint32_t value);
    int rank_;
    std::vector<int> cores_;  // that it may use
    Buffer memory_;
    Word* ours_ = nullptr;  // null: nothing is measured
    Word* theirs_ = nullptr;
    std::uint32_t round_ = 0;
};

}  // namespace tandem::sync
