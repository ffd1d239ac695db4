#include "engine_adapter/transport/nccl/runs.h"

#include <algorithm>

#include "common/align.h"
#include "common/error.h"

namespace tandem::engine {
namespace {

// A gap between two pieces of at most this size travels with them: pieces are aligned to less.
constexpr std::uint64_t kGap = 512;
constexpr std::uint64_t kAlign = 256;
constexpr std::size_t kMaxRuns = 4096;

struct Range {
    std::uint32_t region;
    std::uint64_t begin, end;
};

void refuse() {
    throw ProtocolError(
        fmt::format("a bucket lies in more than {} pieces of memory, which NCCL would carry one by one: use "
                    "mode gather",
                    kMaxRuns));
}

std::vector<Range> ranges_of(std::span<const Transfer> bucket) {
    std::vector<Range> ranges;
    for (const Transfer& t : bucket) {
        const std::uint64_t row = t.row_elements * dtype_size(t.from_dtype);
        ranges.push_back({t.region, t.from, t.from + (t.rows - 1) * t.from_stride + row});
    }
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
        return a.region != b.region ? a.region < b.region : a.begin < b.begin;
    });
    return ranges;
}

}  // namespace

Runs runs_of(std::span<const Transfer> bucket) {
    Runs runs;
    for (const Range& range : ranges_of(bucket)) {
        if (!runs.list.empty()) {
            Run& last = runs.list.back();
            const std::uint64_t end = last.offset + last.bytes;
            if (last.region == range.region && range.begin <= end + kGap) {
                last.bytes = std::max(end, range.end) - last.offset;
                continue;
            }
        }
        if (runs.list.size() == kMaxRuns) refuse();
        runs.list.push_back({range.region, range.begin, range.end - range.begin, 0});
    }
    // As far from an aligned address on arrival as in the region, so that copies stay as wide.
    for (Run& run : runs.list) {
        run.packed = round_up(runs.bytes, kAlign) + run.offset % kAlign;
        runs.bytes = run.packed + run.bytes;
    }
    return runs;
}

std::uint64_t Runs::packed(std::uint32_t region, std::uint64_t offset) const {
    const auto after =
        std::upper_bound(list.begin(), list.end(), offset, [region](std::uint64_t at, const Run& run) {
            return run.region != region ? region < run.region : at < run.offset;
        });
    require(after != list.begin(), "no run holds byte {} of region {}", offset, region);
    const Run& run = *std::prev(after);
    require(run.region == region && offset - run.offset < run.bytes, "no run holds byte {} of region {}",
            offset, region);
    return run.packed + (offset - run.offset);
}

}  // namespace tandem::engine
