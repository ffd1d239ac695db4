// Deltas: a thread compares eight elements, which are a byte of the bitmap; a scan over tiles says where each
// tile's values and gaps go, the host chooses the encoding, and a second pass writes it. The choice and the
// bytes are those of the CPU.
#include "common/error.h"
#include "common/ops/cuda/backend.cuh"
#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/shared/delta_codec.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kTile = kThreads * kVector;
constexpr int kScanThreads = 256;

struct Source {
    const std::byte* data;
    std::int64_t stride, row_elements, elements;
    bool is_bfloat16, vector;
    bool wide;  // elements of four bytes, else two
};

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

__device__ __forceinline__ void load_fresh(const Source& s, std::int64_t at, std::uint32_t (&fresh)[8]) {
    const std::int64_t count = s.elements - at;
    float v[8] = {};
    if (s.vector) {
        const std::int64_t row = at / s.row_elements;
        const Elements elements{const_cast<std::byte*>(s.data) + row * s.stride, s.is_bfloat16, true};
        load8(elements, at - row * s.row_elements, count, v);
    } else {
        for (int i = 0; i < 8 && i < count; ++i) {
            const std::int64_t row = (at + i) / s.row_elements;
            const Elements elements{const_cast<std::byte*>(s.data) + row * s.stride, s.is_bfloat16, false};
            v[i] = load1(elements, (at + i) % s.row_elements);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const std::uint32_t bits = shared::bits_of(v[i]);
        // A bfloat16 as it was: rounding would make a signalling NaN quiet.
        fresh[i] = s.wide ? bits : (s.is_bfloat16 ? bits >> 16 : shared::bfloat16_bits(v[i]));
    }
}

__device__ __forceinline__ std::uint32_t element(const std::byte* from, bool wide, std::int64_t at) {
    return wide ? reinterpret_cast<const std::uint32_t*>(from)[at]
                : reinterpret_cast<const std::uint16_t*>(from)[at];
}

__device__ __forceinline__ std::int64_t block_exclusive_max(std::int64_t value, std::int64_t* room,
                                                            std::int64_t& total) {
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    std::int64_t inclusive = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const std::int64_t other = __shfl_up_sync(kAllLanes, inclusive, static_cast<unsigned>(step));
        if (lane >= step && other > inclusive) inclusive = other;
    }
    const std::int64_t below = __shfl_up_sync(kAllLanes, inclusive, 1u);
    if (lane == 31) room[warp] = inclusive;
    __syncthreads();
    std::int64_t before = lane == 0 ? -1 : below;
    total = -1;
    for (int i = 0; i < warps; ++i) {
        if (i < warp && room[i] > before) before = room[i];
        if (room[i] > total) total = room[i];
    }
    __syncthreads();
    return before;
}

// What the byte of a thread holds: the changes of elements [at, at + 8).
struct Changes {
    std::int64_t first = -1, last = -1;
    std::uint64_t inner_gap_bytes = 0;  // of all but the first

    __device__ Changes(std::uint32_t bits, std::int64_t at) {
        for (int i = 0; i < 8; ++i) {
            if ((bits >> i & 1u) == 0) continue;
            if (first < 0) {
                first = at + i;
            } else {
                inner_gap_bytes += shared::gap_bytes(static_cast<std::uint64_t>(at + i - last - 1));
            }
            last = at + i;
        }
    }
};

// Grid: tiles. Writes the new elements over base.
__global__ void __launch_bounds__(kThreads)
    compare_kernel(Source source, std::byte* base, std::uint8_t* bitmap, Tile* tiles) {
    __shared__ std::uint64_t room[32];
    __shared__ std::int64_t positions[32];
    const std::int64_t begin = blockIdx.x * kTile;
    const std::int64_t at = begin + threadIdx.x * kVector;
    std::uint32_t bits = 0;
    if (at < source.elements) {
        std::uint32_t fresh[8];
        load_fresh(source, at, fresh);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (at + i >= source.elements || element(base, source.wide, at + i) == fresh[i]) continue;
            bits |= 1u << i;
            if (source.wide) {
                reinterpret_cast<std::uint32_t*>(base)[at + i] = fresh[i];
            } else {
                reinterpret_cast<std::uint16_t*>(base)[at + i] = static_cast<std::uint16_t>(fresh[i]);
            }
        }
        bitmap[at / 8] = static_cast<std::uint8_t>(bits);
    }
    const Changes changes(bits, at);
    std::int64_t last = -1;
    const std::int64_t previous = block_exclusive_max(changes.last, positions, last);
    std::uint64_t gaps = changes.inner_gap_bytes;
    if (changes.first >= 0 && previous >= 0)
        gaps += shared::gap_bytes(static_cast<std::uint64_t>(changes.first - previous - 1));
    gaps = block_sum(gaps, room);
    const std::uint64_t changed = block_sum(static_cast<std::uint64_t>(__popc(bits)), room);
    if (changes.first >= 0 && previous < 0) tiles[blockIdx.x].first = changes.first;
    if (threadIdx.x != 0) return;
    tiles[blockIdx.x].last = last;
    tiles[blockIdx.x].changed = changed;
    tiles[blockIdx.x].gap_bytes = gaps;
}

// One block over all tiles, in order.
__global__ void __launch_bounds__(kScanThreads) scan_kernel(Tile* tiles, std::int64_t count, Totals* totals) {
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
    pack_kernel(Source source, const std::byte* base, const std::uint8_t* bitmap, const Tile* tiles,
                std::byte* values, std::byte* gaps) {
    __shared__ std::uint64_t room[32];
    __shared__ std::int64_t positions[32];
    const Tile& tile = tiles[blockIdx.x];  // `first` may hold nothing
    if (tile.changed == 0) return;
    const std::int64_t at = blockIdx.x * kTile + threadIdx.x * kVector;
    const std::uint32_t bits = at < source.elements ? bitmap[at / 8] : 0u;
    const Changes changes(bits, at);
    std::int64_t most = -1;
    std::int64_t previous = block_exclusive_max(changes.last, positions, most);
    previous = previous > tile.previous ? previous : tile.previous;
    std::uint64_t mine = changes.inner_gap_bytes;
    if (changes.first >= 0)
        mine += shared::gap_bytes(static_cast<std::uint64_t>(changes.first - previous - 1));
    std::uint64_t all = 0;
    std::uint64_t gap_at = tile.gaps_at + block_exclusive_sum(mine, room, all);
    std::uint64_t value_at =
        tile.values_at + block_exclusive_sum(static_cast<std::uint64_t>(__popc(bits)), room, all);
    const int width = source.wide ? 4 : 2;
    for (int i = 0; i < 8; ++i) {
        if ((bits >> i & 1u) == 0) continue;
        put(values + value_at++ * static_cast<std::uint64_t>(width), element(base, source.wide, at + i),
            width);
        if (gaps == nullptr) continue;
        std::int64_t gap = at + i - previous - 1;
        for (; gap >= 255; gap -= 255) gaps[gap_at++] = std::byte{255};
        gaps[gap_at++] = static_cast<std::byte>(gap);
        previous = at + i;
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
    Source from{source.data,
                static_cast<std::int64_t>(one ? 0 : source.stride),
                source.row_elements,
                static_cast<std::int64_t>(elements),
                source.from_dtype == DType::bfloat16,
                false,
                width == 4};
    if (packed) from.row_elements = std::max<std::int64_t>(1, from.elements);
    from.vector = aligned && (packed || (source.stride % 16 == 0 && source.row_elements % kVector == 0));
    {
        Work work(stream, "delta_encode");
        const std::int64_t count = ceil_div(from.elements, kTile);
        std::uint8_t* const bitmap = work.scratch<std::uint8_t>(static_cast<std::int64_t>(bitmap_bytes));
        Tile* const tiles = work.scratch<Tile>(count);
        Totals* const there = work.scratch<Totals>(1);
        work.launch(compare_kernel, count, kThreads, 0, from, base.data, bitmap, tiles);
        work.launch(scan_kernel, 1, kScanThreads, 0, tiles, count, there);
        Totals totals{};
        work.download(there, std::span<Totals>(&totals, 1));
        work.synchronize();
        result.changed = static_cast<std::int64_t>(totals.changed);
        result.codec = shared::smallest_codec(elements, width, totals.changed, totals.gap_bytes);
        const auto pack = [&](std::byte* values, std::byte* gaps) {
            work.launch(pack_kernel, count, kThreads, 0, from, static_cast<const std::byte*>(base.data),
                        static_cast<const std::uint8_t*>(bitmap), static_cast<const Tile*>(tiles), values,
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
    result.content = copy_checksum(stream, {.from = base, .to = {nullptr, base.bytes}});
    const Span encoded = to.subspan(0, result.bytes);
    result.encoded = result.codec == DeltaCodec::dense
                         ? result.content
                         : copy_checksum(stream, {.from = encoded, .to = {nullptr, encoded.bytes}});
    return result;
}

}  // namespace tandem::ops::TANDEM_KERNELS
