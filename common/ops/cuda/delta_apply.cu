// delta_apply: the encoding, which is from outside, is counted on the device and judged on the host; then
// each thread writes what its piece of the gaps or of the bitmap names. Where its first element and value are
// follows from the counts of the tiles before it.
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/delta.h"
#include "common/ops/delta_checks.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr std::int64_t kPiece = 8;  // bytes of gaps or bitmap that a thread has
constexpr std::int64_t kApplyTile = kThreads * kPiece;

// The encoding: gaps or a bitmap say which elements change, `values` has them in order.
struct Encoding {
    const std::byte* marks;
    std::int64_t bytes;
    bool bitmap;
    const std::byte* values;
};

// Elements of `width` bytes in rows.
struct Target {
    std::byte* to;
    std::int64_t row_elements, stride;
    int width;

    __device__ void put(std::uint64_t element, const std::byte* value) const {
        const auto at = static_cast<std::int64_t>(element);
        std::byte* const place = to + at / row_elements * stride + at % row_elements * width;
        for (int i = 0; i < width; ++i) place[i] = value[i];
    }
};

struct Marks {
    std::uint64_t passed = 0;  // elements without a change that gaps step over
    std::uint64_t changes = 0;
};

__device__ __forceinline__ Marks marks_of(const Encoding& from, std::int64_t begin) {
    Marks result;
    for (std::int64_t at = begin; at < begin + kPiece && at < from.bytes; ++at) {
        const auto byte = static_cast<unsigned>(from.marks[at]);
        result.passed += from.bitmap ? 0 : byte;
        result.changes += from.bitmap ? static_cast<unsigned>(__popc(byte)) : (byte != 255 ? 1u : 0u);
    }
    return result;
}

// Grid: tiles.
__global__ void __launch_bounds__(kThreads) count_kernel(Encoding from, Marks* tiles) {
    __shared__ std::uint64_t room[32];
    Marks mine = marks_of(from, blockIdx.x * kApplyTile + threadIdx.x * kPiece);
    mine.passed = block_sum(mine.passed, room);
    mine.changes = block_sum(mine.changes, room);
    if (threadIdx.x == 0) tiles[blockIdx.x] = mine;
}

// One block: the tiles' counts become what is before each of them.
__global__ void __launch_bounds__(kThreads)
    scan_marks_kernel(Marks* tiles, std::int64_t count, Marks* totals) {
    __shared__ std::uint64_t room[33];
    Marks before;
    for (std::int64_t begin = 0; begin < count; begin += kThreads) {
        const std::int64_t at = begin + threadIdx.x;
        const Marks mine = at < count ? tiles[at] : Marks();
        Marks all;
        const std::uint64_t passed = before.passed + block_exclusive_sum(mine.passed, room, all.passed);
        const std::uint64_t changes = before.changes + block_exclusive_sum(mine.changes, room, all.changes);
        if (at < count) {
            tiles[at].passed = passed;
            tiles[at].changes = changes;
        }
        before.passed += all.passed;
        before.changes += all.changes;
    }
    if (threadIdx.x == 0) *totals = before;
}

// Grid: tiles.
__global__ void __launch_bounds__(kThreads) apply_kernel(Encoding from, const Marks* tiles, Target target) {
    __shared__ std::uint64_t room[33];
    const std::int64_t begin = blockIdx.x * kApplyTile + threadIdx.x * kPiece;
    const Marks mine = marks_of(from, begin);
    Marks all, here = tiles[blockIdx.x];
    here.passed += block_exclusive_sum(mine.passed, room, all.passed);
    here.changes += block_exclusive_sum(mine.changes, room, all.changes);
    for (std::int64_t at = begin; at < begin + kPiece && at < from.bytes; ++at) {
        const auto byte = static_cast<unsigned>(from.marks[at]);
        if (!from.bitmap) {
            here.passed += byte;
            if (byte == 255) continue;
            target.put(here.passed + here.changes, from.values + here.changes * target.width);
            ++here.changes;
            continue;
        }
        for (unsigned bit = 0; bit < 8; ++bit) {
            if ((byte >> bit & 1u) == 0) continue;
            target.put(static_cast<std::uint64_t>(at) * 8 + bit, from.values + here.changes * target.width);
            ++here.changes;
        }
    }
}

template <typename T>
T fetch(Work& work, const void* from) {
    T value{};
    work.download(from, sizeof value,
                  [&](const std::byte* bytes) { std::memcpy(&value, bytes, sizeof value); });
    work.synchronize();
    return value;
}

}  // namespace

void delta_apply(Stream& stream, DeltaCodec codec, ConstSpan encoded, std::size_t width, std::int64_t rows,
                 std::int64_t row_elements, std::byte* to, std::size_t stride) {
    const std::size_t elements = static_cast<std::size_t>(rows) * static_cast<std::size_t>(row_elements);
    if (checks::delta_is_plain(codec, encoded.bytes, width, elements)) {
        if (codec == DeltaCodec::none || elements == 0) return;
        const std::size_t row_bytes = static_cast<std::size_t>(row_elements) * width;
        CopyItem item;
        item.from = {encoded.data, row_bytes};
        item.to = {to, row_bytes};
        item.rows = rows;
        item.from_stride = row_bytes;
        item.to_stride = stride;
        batched_copy(stream, {&item, 1});
        stream.synchronize();
        return;
    }
    Work work(stream, "delta_apply");
    Encoding from{encoded.data, 0, codec == DeltaCodec::bitmap, nullptr};
    checks::GapsLayout layout;
    if (from.bitmap) {
        from.bytes = static_cast<std::int64_t>(checks::bitmap_bytes(encoded.bytes, elements));
        from.values = encoded.data + from.bytes;
    } else {
        checks::gaps_have_count(encoded.bytes);
        layout =
            checks::gaps_layout(fetch<std::uint32_t>(work, encoded.data), encoded.bytes, width, elements);
        from.marks = encoded.data + layout.gaps_at;
        from.bytes = static_cast<std::int64_t>(layout.gap_bytes);
        from.values = encoded.data + sizeof(std::uint32_t);
    }
    const std::int64_t count = ceil_div(from.bytes, kApplyTile);
    Marks* const tiles = work.scratch<Marks>(count + 1);
    work.launch(count_kernel, count, kThreads, 0, from, tiles);
    work.launch(scan_marks_kernel, 1, kThreads, 0, tiles, count, tiles + count);
    const Marks totals = fetch<Marks>(work, tiles + count);
    const std::uint8_t last =
        from.bytes == 0 ? std::uint8_t{0} : fetch<std::uint8_t>(work, from.marks + from.bytes - 1);
    if (from.bitmap) {
        checks::bitmap_fits(encoded.bytes, totals.changes, last, width, elements);
    } else {
        checks::gaps_fit(layout, totals.passed, totals.changes, last, elements);
    }
    work.launch(apply_kernel, count, kThreads, 0, from, static_cast<const Marks*>(tiles),
                Target{to, row_elements, static_cast<std::int64_t>(stride), static_cast<int>(width)});
    work.synchronize();
}

}  // namespace tandem::ops::TANDEM_KERNELS
