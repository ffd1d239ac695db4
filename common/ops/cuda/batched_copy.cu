// Copies, casts and XXH3-128 in one pass over the source: a warp takes a block of 1024 bytes, writes it and
// leaves the block's sums; a second kernel runs the chain over the sums of each item and makes its digest. The
// host hashes what is too short for sums. Items must not overlap, and both sides must be memory that the GPU reaches.
#include "common/ops/batched_copy.h"
#include "common/ops/cuda/copy_items.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/shared/attention_index.h"
#include "common/ops/shared/xxh3.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

constexpr int kBlocksOfWarp = 4;
constexpr std::int64_t kCopyTile = shared::kXxh3Block * kBlocksOfWarp * (kThreads / 32);
constexpr std::size_t kShortBytes = 256;      // as far apart lie the bytes of items that are too short
constexpr std::size_t kSumsBytes = 64 << 20;  // of the items that are hashed side by side

__device__ __forceinline__ std::uint64_t wide(std::uint32_t low, std::uint32_t high) {
    return std::uint64_t{high} << 32 | low;
}

// Two lanes' sums of 16 bytes: unit u of a block is a quarter of stripe u / 4.
__device__ __forceinline__ void sum16(const Words& words, std::uint64_t secret0, std::uint64_t secret1,
                                      std::uint64_t& sum0, std::uint64_t& sum1) {
    const std::uint64_t v0 = wide(words.w[0], words.w[1]);
    const std::uint64_t v1 = wide(words.w[2], words.w[3]);
    sum0 += shared::xxh3_product(v0, secret0) + v1;
    sum1 += shared::xxh3_product(v1, secret1) + v0;
}

// A lane's part of the sums of a block: units `lane` and `lane + 32`, which are lanes 2 (lane % 4) and the
// next of stripes lane / 4 and 8 further.
struct BlockSums {
    std::uint64_t keys[2][2];
    std::uint64_t stripes;  // of the item
    std::uint64_t* sums;    // of the item's blocks

    __device__ __forceinline__ BlockSums(const DeviceItem& item, const shared::Xxh3Secret& secret,
                                         unsigned lane, std::uint64_t* all)
        : stripes(shared::xxh3_stripes(item.bytes)), sums(all + item.first_block * 8) {
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            const unsigned at = lane / 4 + 8 * half + 2 * (lane % 4);
            keys[half][0] = secret.whole_word(at);
            keys[half][1] = secret.whole_word(at + 1);
        }
    }
    // By all lanes of a warp.
    __device__ __forceinline__ void of_block(std::uint64_t block, unsigned lane,
                                             const Words (&words)[2]) const {
        std::uint64_t sum0 = 0, sum1 = 0;
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            if (block * 16 + 8 * half + lane / 4 < stripes)
                sum16(words[half], keys[half][0], keys[half][1], sum0, sum1);
        }
#pragma unroll
        for (int step = 16; step >= 4; step /= 2) {
            sum0 += __shfl_xor_sync(kAllLanes, sum0, step);
            sum1 += __shfl_xor_sync(kAllLanes, sum1, step);
        }
        if (lane < 4) {
            sums[block * 8 + 2 * lane] = sum0;
            sums[block * 8 + 2 * lane + 1] = sum1;
        }
    }
};

// kBlocks of a warp whose 16-byte units are all there: all loads are on their way before the first store.
template <Conversion kConversion, int kBlocks>
__device__ __forceinline__ void copy_whole(const DeviceItem& item, std::uint64_t first, unsigned lane,
                                           const shared::Xxh3Secret& secret, std::uint64_t* all_sums) {
    Words words[kBlocks][2];
#pragma unroll
    for (unsigned n = 0; n < 2 * kBlocks; ++n)
        words[n / 2][n % 2] = read_unit<kConversion>(item, first + 512 * n + 16 * lane);
    if (item.to != nullptr) {
#pragma unroll
        for (unsigned n = 0; n < 2 * kBlocks; ++n)
            write_unit(item, first + 512 * n + 16 * lane, words[n / 2][n % 2]);
    }
    if (!item.hashed || item.bytes <= shared::kXxh3Long) return;
    const BlockSums sums(item, secret, lane, all_sums);
#pragma unroll
    for (unsigned b = 0; b < kBlocks; ++b) sums.of_block(first / shared::kXxh3Block + b, lane, words[b]);
}

// Grid: tiles of all items.
__global__ void __launch_bounds__(kThreads, 3)
    copy_kernel(const DeviceItem* items, const std::int64_t* starts, std::int64_t count,
                const __grid_constant__ shared::Xxh3Secret secret, std::uint64_t* all_sums) {
    const std::int64_t index = shared::part_of(starts, count, blockIdx.x);
    const DeviceItem item = items[index];
    assume_global(item);
    const unsigned lane = threadIdx.x % 32;
    const auto tile = static_cast<std::uint64_t>(blockIdx.x - starts[index]) * kCopyTile;
    const std::uint64_t first = tile + (threadIdx.x / 32) * (kBlocksOfWarp * shared::kXxh3Block);
    const std::uint64_t end = first + kBlocksOfWarp * shared::kXxh3Block;
    if (first >= item.bytes) return;
    if (item.vector && end <= item.bytes && !of_half(item.conversion)) {
        constexpr std::uint64_t kHalf = kBlocksOfWarp / 2 * shared::kXxh3Block;
        if (item.conversion == Conversion::none) {
            copy_whole<Conversion::none, kBlocksOfWarp>(item, first, lane, secret, all_sums);
        } else if (item.conversion == Conversion::narrow) {
            copy_whole<Conversion::narrow, kBlocksOfWarp / 2>(item, first, lane, secret, all_sums);
            copy_whole<Conversion::narrow, kBlocksOfWarp / 2>(item, first + kHalf, lane, secret, all_sums);
        } else {
            copy_whole<Conversion::widen, kBlocksOfWarp>(item, first, lane, secret, all_sums);
        }
        return;
    }
    const BlockSums sums(item, secret, lane, all_sums);
#pragma unroll 1
    for (std::uint64_t at = first; at < end && at < item.bytes; at += shared::kXxh3Block) {
        Words words[2];
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            words[half] = read16(item, at + 512 * half + 16 * lane);
            if (item.to != nullptr) write16(item, at + 512 * half + 16 * lane, words[half]);
        }
        if (item.hashed && item.bytes > shared::kXxh3Long)
            sums.of_block(at / shared::kXxh3Block, lane, words);
    }
}

// A warp an item: lane j has sum j. An item that is too short for sums has its bytes handed over instead, as number
// first_block of those. Writes all digests and all of the short items' bytes, of others zeros.
__global__ void __launch_bounds__(32)
    chain_kernel(const DeviceItem* items, shared::Xxh3Secret secret, const std::uint64_t* sums,
                 Checksum* digests, std::byte* short_items) {
    const DeviceItem item = items[blockIdx.x];
    const unsigned lane = threadIdx.x;
    if (!item.hashed || item.bytes <= shared::kXxh3Long) {
        if (lane == 0) digests[blockIdx.x] = {};
        if (!item.hashed) return;
        std::byte* const to = short_items + item.first_block * kShortBytes;
        for (std::uint64_t at = lane; at < kShortBytes; at += 32)
            to[at] = at < item.bytes ? std::byte{byte_at(item, at)} : std::byte{0};
        return;
    }
    // Only the chain itself takes its steps one after another: 64 blocks' sums are loaded while those of the
    // 64 before are taken in, four blocks by the lanes of a load.
    constexpr int kLoads = 16;
    const unsigned j = lane % 8;
    const std::uint64_t scramble = secret.word(shared::kXxh3ScrambleSecret + 8 * j);
    const std::uint64_t full = shared::xxh3_full_blocks(item.bytes);
    const std::uint64_t* const mine = sums + item.first_block * 8 + j;
    const auto load = [&](std::uint64_t first, std::uint64_t(&to)[kLoads]) {
#pragma unroll
        for (unsigned i = 0; i < kLoads; ++i) {
            const std::uint64_t block = first + 4 * i + lane / 8;
            to[i] = block < full ? mine[block * 8] : 0;
        }
    };
    std::uint64_t sum = shared::xxh3_start(j);
    std::uint64_t now[kLoads];
    load(0, now);
    std::uint64_t block = 0;
    for (; block + 4 * kLoads <= full; block += 4 * kLoads) {
        std::uint64_t next[kLoads];
        load(block + 4 * kLoads, next);
#pragma unroll
        for (unsigned i = 0; i < kLoads; ++i) {
#pragma unroll
            for (unsigned n = 0; n < 4; ++n) {
                const std::uint64_t taken = __shfl_sync(kAllLanes, now[i], static_cast<int>(8 * n + j));
                sum = shared::xxh3_scramble(sum + taken, scramble);
            }
        }
#pragma unroll
        for (unsigned i = 0; i < kLoads; ++i) now[i] = next[i];
    }
    for (; block < full; ++block) sum = shared::xxh3_scramble(sum + mine[block * 8], scramble);
    if (shared::xxh3_blocks(item.bytes) > full) sum += mine[full * 8];
    std::uint64_t v = 0;
    for (unsigned i = 0; i < 8; ++i)
        v |= std::uint64_t{byte_at(item, item.bytes - shared::kXxh3Stripe + 8 * j + i)} << (8 * i);
    const std::uint64_t neighbour = __shfl_xor_sync(kAllLanes, v, 1);
    sum += shared::xxh3_product(v, secret.word(shared::kXxh3LastSecret + 8 * j)) + neighbour;
    shared::Xxh3Sums all;
#pragma unroll
    for (int i = 0; i < 8; ++i) all.lanes[i] = __shfl_sync(kAllLanes, sum, i);
    if (lane == 0) {
        Checksum& digest = digests[blockIdx.x];
        shared::xxh3_digest(all, secret, item.bytes, digest.low, digest.high);
    }
}

Conversion conversion_of(DType from, DType to) {
    if (from == to) return Conversion::none;
    if (from == DType::float16)
        return to == DType::float32 ? Conversion::widen_half : Conversion::bfloat16_of_half;
    if (to == DType::float16)
        return from == DType::float32 ? Conversion::narrow_half : Conversion::half_of_bfloat16;
    return to == DType::bfloat16 ? Conversion::narrow : Conversion::widen;
}

DeviceItem device_item(const CopyItem& item) {
    const bool writes = item.to.data != nullptr;
    DeviceItem d;
    d.from = item.from.data;
    d.to = item.to.data;
    const bool one = item.rows == 1;
    d.from_stride = one ? 0 : item.from_stride;
    d.to_stride = one || !writes ? 0 : item.to_stride;
    d.row_bytes = item.to.bytes;
    d.bytes = item.to.bytes * static_cast<std::uint64_t>(item.rows);
    d.conversion = conversion_of(item.from_dtype, item.to_dtype);
    const bool packed =
        item.rows <= 1 || (d.from_stride == item.from.bytes && (!writes || d.to_stride == d.row_bytes));
    if (packed) d.row_bytes = d.bytes;  // one long row
    const bool widens = d.conversion == Conversion::widen || d.conversion == Conversion::widen_half;
    const std::uintptr_t need = widens ? 8 : 16;
    const auto aligned = [](auto value, std::uintptr_t to) {
        return static_cast<std::uintptr_t>(value) % to == 0;
    };
    d.vector =
        aligned(reinterpret_cast<std::uintptr_t>(d.from), need) &&
        aligned(reinterpret_cast<std::uintptr_t>(d.to), 16) &&
        (packed || (aligned(d.from_stride, need) && aligned(d.to_stride, 16) && aligned(d.row_bytes, 16) &&
                    d.row_bytes > 0 && d.bytes / 16 < static_cast<std::uint64_t>(kDividends)));
    if (d.vector && !packed) d.row_units = shared::divider(static_cast<std::int64_t>(d.row_bytes / 16));
    const bool in_place =
        d.conversion == Conversion::none && d.to == d.from && (packed || d.from_stride == d.to_stride);
    if (in_place) d.to = nullptr;
    return d;
}

void run(Work& work, std::span<const CopyItem> items) {
    std::vector<DeviceItem> list;
    std::vector<std::int64_t> starts{0};
    list.reserve(items.size());
    starts.reserve(items.size() + 1);
    std::vector<Checksum*> checksums;
    checksums.reserve(items.size());
    struct Short {
        Checksum* checksum;
        std::uint64_t bytes;
    };
    std::vector<Short> shorts;
    std::uint64_t blocks = 0;
    bool hashes = false;
    for (const CopyItem& from : items) {
        DeviceItem& item = list.emplace_back(device_item(from));
        item.hashed = from.checksum != nullptr;
        if (item.hashed && item.bytes <= shared::kXxh3Long) {
            item.first_block = shorts.size();
            shorts.push_back({from.checksum, item.bytes});
        } else if (item.hashed) {
            item.first_block = blocks;
            blocks += shared::xxh3_blocks(item.bytes);
        }
        checksums.push_back(from.checksum);
        hashes = hashes || item.hashed;
        starts.push_back(starts.back() + ceil_div(static_cast<std::int64_t>(item.bytes), kCopyTile));
    }
    const auto count = static_cast<std::int64_t>(list.size());
    const shared::Xxh3Secret secret = shared::xxh3_secret();
    const DeviceItem* const there = work.upload(list);
    const std::int64_t* const tiles = work.upload(starts);
    std::uint64_t* const sums = work.scratch<std::uint64_t>(static_cast<std::int64_t>(blocks) * 8);
    work.launch(copy_kernel, starts.back(), kThreads, 0, there, tiles, count, secret, sums);
    if (!hashes) return;
    const std::size_t digest_bytes = list.size() * sizeof(Checksum);
    const std::size_t bytes = digest_bytes + shorts.size() * kShortBytes;
    std::byte* const found = work.scratch(bytes);
    work.launch(chain_kernel, count, 32, 0, there, secret, static_cast<const std::uint64_t*>(sums),
                reinterpret_cast<Checksum*>(found), found + digest_bytes);
    work.download(
        found, bytes,
        [to = std::move(checksums), shorts = std::move(shorts), digest_bytes](const std::byte* all) {
            for (std::size_t i = 0; i < to.size(); ++i) {
                if (to[i] != nullptr) std::memcpy(to[i], all + i * sizeof(Checksum), sizeof(Checksum));
            }
            for (std::size_t i = 0; i < shorts.size(); ++i)
                *shorts[i].checksum = checksum({all + digest_bytes + i * kShortBytes, shorts[i].bytes});
        });
}

}  // namespace

// In groups of items whose sums fit kSumsBytes.
void batched_copy(Stream& stream, std::span<const CopyItem> items) {
    constexpr std::uint64_t kBytesOfGroup = kSumsBytes * (shared::kXxh3Block / 64);
    for (std::size_t begin = 0; begin < items.size();) {
        std::size_t end = begin;
        std::uint64_t bytes = 0;
        while (end < items.size() && (end == begin || bytes < kBytesOfGroup)) {
            bytes += items[end].to.bytes * static_cast<std::uint64_t>(items[end].rows);
            ++end;
        }
        Work work(stream, "batched_copy");
        run(work, items.subspan(begin, end - begin));
        begin = end;
    }
}

}  // namespace tandem::ops::TANDEM_KERNELS
