#include "common/ops/cpu/copy_prefetch.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/log.h"

namespace tandem::ops::detail {
namespace {

constexpr std::array kWays = {Prefetch::non_temporal, Prefetch::far, Prefetch::near};
constexpr std::array<std::string_view, 3> kNames = {"non_temporal", "far", "near"};
constexpr int kLooks = 9;
constexpr double kTie = 0.97;
constexpr std::size_t kBytes = 256 << 10;
constexpr std::size_t kRow = 2 << 10;  // a row of half a projection; the other half is the gap

std::string_view name_of(Prefetch way) {
    return kNames[static_cast<std::size_t>(way)];
}

// The work of a sync on bytes that are in no cache: it hashes them, or hashes and copies them.
class Look {
  public:
    Look(const CopyKernelSet& kernels, RowsLie rows)
        : kernels_(kernels),
          apart_(rows == RowsLie::apart),
          from_bytes_(apart_ ? 2 * kBytes : kBytes),
          from_(from_bytes_ + 64),
          to_(kBytes + 64) {}

    double seconds(Prefetch way) {
        const CopyKernels& kernels = kernels_.with(way);
        return run(kernels.hash_lines) + run(kernels.hash_stream_lines);
    }

  private:
    double run(void (*lines)(HashState&, const CopyLines&)) {
        std::byte* const from = aligned(from_);
        std::byte* const to = aligned(to_);
        for (std::size_t at = 0; at < from_bytes_; at += 64) _mm_clflush(from + at);
        for (std::size_t at = 0; at < kBytes; at += 64) _mm_clflush(to + at);
        _mm_mfence();
        HashState state;
        kernels_.non_temporal.hash_begin(state);
        const auto start = std::chrono::steady_clock::now();
        apart_ ? lines(state, {from, 2 * kRow, to, kRow, kBytes / kRow, kRow})
               : lines(state, {from, 0, to, 0, 1, kBytes});
        _mm_mfence();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    static std::byte* aligned(std::vector<std::byte>& bytes) {
        return bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
    }

    const CopyKernelSet& kernels_;
    bool apart_;
    std::size_t from_bytes_;
    std::vector<std::byte> from_, to_;
};

}  // namespace

Prefetch fastest_prefetch(const std::function<double(Prefetch)>& seconds) {
    std::array<double, kWays.size()> best;
    best.fill(std::numeric_limits<double>::infinity());
    for (int look = 0; look < kLooks; ++look) {
        for (std::size_t i = 0; i < kWays.size(); ++i) best[i] = std::min(best[i], seconds(kWays[i]));
    }
    const auto least = std::min_element(best.begin(), best.end());
    return *least < best.front() * kTie ? kWays[static_cast<std::size_t>(least - best.begin())]
                                        : kWays.front();
}

Prefetch choose_prefetch(const CopyKernelSet& kernels, RowsLie rows) {
    if (const char* forced = std::getenv("TANDEM_PREFETCH"); forced != nullptr && *forced != '\0') {
        const auto found = std::find(kNames.begin(), kNames.end(), forced);
        require(found != kNames.end(), "TANDEM_PREFETCH={}: known are non_temporal, far, near", forced);
        return kWays[static_cast<std::size_t>(found - kNames.begin())];
    }
    Look look(kernels, rows);
    const Prefetch fastest = fastest_prefetch([&](Prefetch way) { return look.seconds(way); });
    log_debug("copies of rows {} prefetch {}", rows == RowsLie::apart ? "apart" : "end to end",
              name_of(fastest));
    return fastest;
}

}  // namespace tandem::ops::detail
