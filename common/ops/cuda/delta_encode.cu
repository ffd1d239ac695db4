// Deltas: a warp compares 1024 elements in accesses that lie side by side; then a thread has 32 of them, a
// word of the bitmap. A scan over tiles says where each tile's values and gaps go, the host chooses the
// encoding, and a second pass writes it. The choice and the bytes are those of the CPU.
#include "common/ops/cuda/delta_compare.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/delta.h"
#include "common/ops/shared/delta_codec.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr std::int64_t kEncodeTile = kThreads * kOfThread;
constexpr int kScanThreads = 256;

// Positions of changed elements of a tile, -1: none; then what the scan makes of them.
struct Tile {
    std::int64_t first, last;
    std::uint64_t changed, gap_bytes;  // of the tile; gap_bytes without the first change's
    std::int64_t previous;             // the last change before the tile, -1: none
    std::uint64_t values_at, gaps_at;  // changes and gap bytes before the tile
};

struct Totals {
    std::uint64_t changed, gap_bytes;
};

template <typename T>
__device__ __forceinline__ T block_exclusive_max(T value, T* room, T& total) {
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    T inclusive = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const T other = __shfl_up_sync(kAllLanes, inclusive, static_cast<unsigned>(step));
        if (lane >= step && other > inclusive) inclusive = other;
    }
    const T below = __shfl_up_sync(kAllLanes, inclusive, 1u);
    if (lane == 31) room[warp] = inclusive;
    __syncthreads();
    T before = lane == 0 ? -1 : below;
    total = -1;
    for (int i = 0; i < warps; ++i) {
        if (i < warp && room[i] > before) before = room[i];
        if (room[i] > total) total = room[i];
    }
    __syncthreads();
    return before;
}

__device__ __forceinline__ int lowest_bit(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return __ffs(static_cast<int>(bits)) - 1;
#else
    return __builtin_ctz(bits);
#endif
}
__device__ __forceinline__ int highest_bit(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return 31 - __clz(static_cast<int>(bits));
#else
    return 31 - __builtin_clz(bits);
#endif
}

// The changes in a thread's word: elements [at, at + 32), counted from the start of the tile.
struct Changes {
    int first = -1, last = -1, count = 0;

    __device__ Changes(std::uint32_t bits, int at) {
        if (bits == 0) return;
        first = at + lowest_bit(bits);
        last = at + highest_bit(bits);
        count = __popc(bits);
    }
    // Bytes of all gaps when `previous` is the change before; the inner ones are below 255, a byte each.
    __device__ std::uint64_t gap_bytes(std::int64_t previous, std::int64_t begin) const {
        if (count == 0) return 0;
        return static_cast<std::uint64_t>(count - 1) +
               shared::gap_bytes(static_cast<std::uint64_t>(begin + first - previous - 1));
    }
};

// Grid: tiles. Writes the new elements over base.
__global__ void __launch_bounds__(kThreads)
    compare_kernel(NewElements source, std::byte* base, std::uint32_t* bitmap, Tile* tiles) {
    __shared__ std::uint32_t room[32];
    __shared__ int positions[32];
    __shared__ std::uint32_t words[kThreads];
    const std::int64_t begin = blockIdx.x * kEncodeTile;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const std::int64_t at = begin + warp * 32 * kOfThread + lane * kVector;
    auto* const bytes = reinterpret_cast<std::uint8_t*>(words) + warp * 32 * kOfThread / 8 + lane;
    if (source.whole && begin + kEncodeTile <= source.elements) {
        if (source.is_bfloat16) {
            if (source.wide) {
                compare_whole<true, true>(source, base, at, bytes);
            } else {
                compare_whole<true, false>(source, base, at, bytes);
            }
        } else if (source.wide) {
            compare_whole<false, true>(source, base, at, bytes);
        } else {
            compare_whole<false, false>(source, base, at, bytes);
        }
    } else {
#pragma unroll 1
        for (int n = 0; n < kGroups; ++n)
            bytes[n * 32] = static_cast<std::uint8_t>(compare_any(source, base, at + n * 256));
    }
    __syncthreads();
    const int mine = static_cast<int>(threadIdx.x) * kOfThread;
    const std::uint32_t bits = words[threadIdx.x];
    if (begin + mine < source.elements) bitmap[begin / kOfThread + threadIdx.x] = bits;
    const Changes changes(bits, mine);
    int last = -1;
    const int previous = block_exclusive_max(changes.last, positions, last);
    // The first change of the tile has no gap yet. Both sums stay below 2^16.
    std::uint32_t sums = static_cast<std::uint32_t>(changes.count) << 16;
    if (changes.count > 0)
        sums += previous >= 0 ? static_cast<std::uint32_t>(changes.gap_bytes(previous, 0))
                              : static_cast<std::uint32_t>(changes.count - 1);
    sums = block_sum(sums, room);
    if (changes.count > 0 && previous < 0) tiles[blockIdx.x].first = begin + changes.first;
    if (threadIdx.x != 0) return;
    tiles[blockIdx.x].last = last < 0 ? -1 : begin + last;
    tiles[blockIdx.x].changed = sums >> 16;
    tiles[blockIdx.x].gap_bytes = sums & 0xffffu;
}

// One block over all tiles, in order.
__global__ void __launch_bounds__(kScanThreads)
    scan_tiles_kernel(Tile* tiles, std::int64_t count, Totals* totals) {
    __shared__ std::uint64_t room[32];
    __shared__ std::int64_t positions[32];
    std::int64_t previous = -1;
    std::uint64_t changed = 0, gaps = 0;
    for (std::int64_t begin = 0; begin < count; begin += kScanThreads) {
        const std::int64_t at = begin + threadIdx.x;
        const bool there = at < count;
        const std::int64_t last = there ? tiles[at].last : -1;
        std::int64_t most = -1;
        std::int64_t before = block_exclusive_max(last, positions, most);
        before = before > previous ? before : previous;
        std::uint64_t tile_gaps = there ? tiles[at].gap_bytes : 0;
        if (last >= 0)
            tile_gaps += shared::gap_bytes(static_cast<std::uint64_t>(tiles[at].first - before - 1));
        std::uint64_t all_changed = 0, all_gaps = 0;
        const std::uint64_t values_at =
            changed + block_exclusive_sum(there ? tiles[at].changed : std::uint64_t{0}, room, all_changed);
        const std::uint64_t gaps_at = gaps + block_exclusive_sum(tile_gaps, room, all_gaps);
        if (there) {
            tiles[at].previous = before;
            tiles[at].values_at = values_at;
            tiles[at].gaps_at = gaps_at;
        }
        previous = most > previous ? most : previous;
        changed += all_changed;
        gaps += all_gaps;
    }
    if (threadIdx.x == 0) *totals = {changed, gaps};
}

__device__ __forceinline__ void put(std::byte* to, std::uint32_t bits, int width) {
    for (int i = 0; i < width; ++i) to[i] = static_cast<std::byte>(bits >> (8 * i));
}

// Grid: tiles. `gaps` null: no gaps are written.
__global__ void __launch_bounds__(kThreads)
    pack_kernel(NewElements source, const std::byte* base, const std::uint32_t* bitmap, const Tile* tiles,
                std::byte* values, std::byte* gaps) {
    __shared__ std::uint64_t room[32];
    __shared__ int positions[32];
    const Tile& tile = tiles[blockIdx.x];  // `first` may hold nothing
    if (tile.changed == 0) return;
    const std::int64_t begin = blockIdx.x * kEncodeTile;
    const int mine = static_cast<int>(threadIdx.x) * kOfThread;
    std::uint32_t bits = begin + mine < source.elements ? bitmap[begin / kOfThread + threadIdx.x] : 0u;
    const Changes changes(bits, mine);
    int most = -1;
    const int before = block_exclusive_max(changes.last, positions, most);
    std::int64_t previous = before >= 0 ? begin + before : tile.previous;
    std::uint64_t all = 0;
    std::uint64_t gap_at = tile.gaps_at + block_exclusive_sum(changes.gap_bytes(previous, begin), room, all);
    std::uint64_t value_at =
        tile.values_at + block_exclusive_sum(static_cast<std::uint64_t>(changes.count), room, all);
    const int width = source.wide ? 4 : 2;
    for (; bits != 0; bits &= bits - 1) {
        const std::int64_t at = begin + mine + lowest_bit(bits);
        put(values + value_at++ * static_cast<std::uint64_t>(width), element(base, source.wide, at), width);
        if (gaps == nullptr) continue;
        std::int64_t gap = at - previous - 1;
        for (; gap >= 255; gap -= 255) gaps[gap_at++] = std::byte{255};
        gaps[gap_at++] = static_cast<std::byte>(gap);
        previous = at;
    }
}

}  // namespace

DeltaResult delta_encode(Stream& stream, const DeltaSource& source, Span base, Span to) {
    DeltaResult result;
    const auto elements = static_cast<std::uint64_t>(source.rows * source.row_elements);
    const std::uint64_t width = dtype_size(source.to_dtype);
    const std::uint64_t bitmap_bytes = (elements + 7) / 8;
    const bool one = source.rows <= 1;
    const bool packed =
        one || source.stride == static_cast<std::size_t>(source.row_elements) * dtype_size(source.from_dtype);
    const bool aligned = reinterpret_cast<std::uintptr_t>(source.data) % 16 == 0;
    NewElements from{source.data,
                     static_cast<std::int64_t>(one ? 0 : source.stride),
                     source.row_elements,
                     static_cast<std::int64_t>(elements),
                     source.from_dtype == DType::bfloat16,
                     false,
                     width == 4,
                     false,
                     {}};
    if (packed) from.row_elements = std::max<std::int64_t>(1, from.elements);
    from.vector = aligned && (packed || (source.stride % 16 == 0 && source.row_elements % kVector == 0));
    from.whole = from.vector && reinterpret_cast<std::uintptr_t>(base.data) % 16 == 0 &&
                 (packed || from.elements / kVector < kDividends);
    if (from.whole && !packed) from.row_units = shared::divider(from.row_elements / kVector);
    {
        Work work(stream, "delta_encode");
        const std::int64_t count = ceil_div(from.elements, kEncodeTile);
        std::uint32_t* const bitmap = work.scratch<std::uint32_t>(ceil_div(from.elements, kOfThread));
        Tile* const tiles = work.scratch<Tile>(count);
        Totals* const there = work.scratch<Totals>(1);
        work.launch(compare_kernel, count, kThreads, 0, from, base.data, bitmap, tiles);
        work.launch(scan_tiles_kernel, 1, kScanThreads, 0, tiles, count, there);
        Totals totals{};
        work.download(there, std::span<Totals>(&totals, 1));
        work.synchronize();
        result.changed = static_cast<std::int64_t>(totals.changed);
        result.codec = shared::smallest_codec(elements, width, totals.changed, totals.gap_bytes);
        const auto pack = [&](std::byte* values, std::byte* gaps) {
            work.launch(pack_kernel, count, kThreads, 0, from, static_cast<const std::byte*>(base.data),
                        static_cast<const std::uint32_t*>(bitmap), static_cast<const Tile*>(tiles), values,
                        gaps);
        };
        const std::uint64_t value_bytes = totals.changed * width;
        if (result.codec == DeltaCodec::gaps) {
            const auto announced = static_cast<std::uint32_t>(totals.changed);
            work.upload(&announced, to.data, sizeof announced);
            pack(to.data + sizeof announced, to.data + sizeof announced + value_bytes);
            result.bytes = sizeof announced + value_bytes + totals.gap_bytes;
        } else if (result.codec == DeltaCodec::bitmap) {
            work.copy(bitmap, to.data, bitmap_bytes);
            pack(to.data + bitmap_bytes, nullptr);
            result.bytes = bitmap_bytes + value_bytes;
        } else if (result.codec == DeltaCodec::dense) {
            work.copy(base.data, to.data, base.bytes);
            result.bytes = base.bytes;
        }
    }
    result.content = checksum(stream, base);
    const Span encoded = to.subspan(0, result.bytes);
    result.encoded = result.codec == DeltaCodec::dense ? result.content : checksum(stream, encoded);
    return result;
}

}  // namespace tandem::ops::TANDEM_KERNELS
