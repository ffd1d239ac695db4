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

void CopyProbe::make_memory(std::uint64_t bytes) {
    if (memory_.bytes() >= bytes) return;
    memory_ = {};
    memory_ = Buffer(bytes, "receiver.probe");
    std::memset(memory_.data(), 0, bytes);  // first touch is not what is measured
}

double CopyProbe::relay_ms(const RelayOrder& order, const RelayProbe& probe, const Attachment& attached,
                           WeightWriter& writer) {
    const std::vector<std::int64_t>& cores = attached.plan().cores;
    const std::uint64_t lane = probe.bucket_bytes / cores.size() / 64 * 64;
    enforce(lane > 0 && probe.bucket_bytes <= kMaxProbePiece && probe.slots <= kMaxPieces &&
                probe.piece_bytes > 0 && probe.buckets <= kMaxPieces,
            "probe of {} buckets of {} bytes in {} slots, in pieces of {}", probe.buckets, probe.bucket_bytes,
            probe.slots, probe.piece_bytes);
    const ConstSpan from = attached.bytes_of(0, 0, probe.slots * probe.bucket_bytes);
    const std::uint64_t part = kProbeMemory / cores.size() / 64 * 64;  // of the memory, a rank
    make_memory(std::max(part, lane) * cores.size());
    const auto start = std::chrono::steady_clock::now();
    take_relayed(order, cores, probe.buckets, writer, [&](std::size_t bucket, std::size_t rank) {
        const std::uint64_t engines = order.words.engines();
        const std::uint64_t begin = lane * order.engine / engines / 64 * 64;
        const std::uint64_t end = lane * (order.engine + 1) / engines / 64 * 64;
        const std::uint64_t first = bucket % probe.slots * probe.bucket_bytes + rank * lane;
        const std::uint64_t space = std::max(part, lane);  // of this rank; gone through in turn
        const std::uint64_t to = rank * space + bucket % (space / lane) * lane;
        ops::Checksum found;
        for (std::uint64_t at = begin; at < end; at += probe.piece_bytes) {
            ops::CopyItem item;
            item.from = from.subspan(first + at, std::min(probe.piece_bytes, end - at));
            item.to = memory_.span().subspan(to + at, item.from.bytes);
            item.checksum = &found;
            writer.write(item);
        }
    });
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

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
    make_memory(size);
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
