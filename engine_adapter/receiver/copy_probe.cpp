#include "engine_adapter/receiver/copy_probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "common/error.h"
#include "common/ops/batched_copy.h"

namespace tandem::engine {
namespace {

// Larger than a cache, so that it is memory that is measured.
constexpr std::uint64_t kProbeMemory = 64u << 20;
constexpr std::uint64_t kMaxProbePiece = 256u << 20;
constexpr std::uint64_t kMaxPieces = 1u << 16;  // each has a checksum

}  // namespace

double CopyProbe::measure_ms(ConstSpan from, std::uint64_t piece_bytes, WeightWriter& writer,
                             std::span<const std::int64_t> cores) {
    const std::uint64_t bytes = from.bytes;
    enforce(bytes > 0 && piece_bytes > 0 && piece_bytes <= kMaxProbePiece,
            "probe of {} bytes in pieces of {}", bytes, piece_bytes);
    const std::uint64_t piece = std::min(piece_bytes, bytes);
    const std::uint64_t count = (bytes - 1) / piece + 1;
    enforce(count <= kMaxPieces, "probe of {} bytes in {} pieces of {}: take {} pieces or fewer", bytes,
            count, piece, kMaxPieces);
    const std::uint64_t size = std::max(piece, kProbeMemory / piece * piece);
    if (memory_.bytes() < size) {
        memory_ = {};
        memory_ = Buffer(size, "receiver.probe");
        std::memset(memory_.data(), 0, size);  // first touch is not what is measured
    }
    const std::uint64_t begin = copied_;  // goes on, so that small probes do not stay in a cache
    copied_ += count * piece;
    const auto start = std::chrono::steady_clock::now();
    std::vector<ops::Checksum> found(count);
    WeightWriter::Core core;
    if (!cores.empty())
        core = [&](std::size_t i) { return static_cast<int>(cores[i * cores.size() / count]); };
    const auto job = [&](std::size_t i) {
        const std::uint64_t at = i * piece;
        ops::CopyItem item;
        item.from = from.subspan(at, std::min(piece, bytes - at));
        item.to = memory_.span().subspan((begin + at) / piece * piece % size, item.from.bytes);
        item.checksum = &found[i];
        Stream here = Stream::make_inline();
        ops::batched_copy(here, {&item, 1});
    };
    writer.share(count, job, core);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tandem::engine
