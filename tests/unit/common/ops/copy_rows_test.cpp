// Strided rows: batched_copy and copy_checksum against a plain loop over rows, gaps between the rows
// untouched; and the kernels that hash whole lines, on every set that this machine runs.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "common/error.h"
#include "common/ops/batched_copy.h"
#include "tests/unit/common/ops/copy_kernels_here.h"

namespace tandem {
namespace {

using ops::Checksum;
using ops::CopyItem;

std::vector<std::byte> random_row_bytes(std::mt19937& generator, std::size_t count) {
    std::vector<std::byte> result(count);
    for (std::byte& b : result) b = static_cast<std::byte>(generator());
    return result;
}

Checksum reference(const std::vector<std::byte>& bytes) {
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    return {.low = hash.low64, .high = hash.high64};
}

float float_at(const std::byte* from, std::size_t i, DType dtype) {
    std::uint16_t bits = 0;
    float value = 0;
    if (dtype == DType::float32) {
        std::memcpy(&value, from + 4 * i, 4);
        return value;
    }
    std::memcpy(&bits, from + 2 * i, 2);
    if (dtype == DType::float16) return static_cast<float>(float16(bits));
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Elements one at a time.
std::vector<std::byte> cast(const std::byte* from, std::size_t count, DType from_dtype, DType to_dtype) {
    const std::size_t from_size = dtype_size(from_dtype), to_size = dtype_size(to_dtype);
    std::vector<std::byte> result(count * to_size);
    for (std::size_t i = 0; i < count; ++i) {
        std::byte* to = result.data() + i * to_size;
        if (from_dtype == to_dtype) {
            std::memcpy(to, from + i * from_size, to_size);
        } else if (to_dtype == DType::bfloat16) {
            const bfloat16 half(float_at(from, i, from_dtype));
            std::memcpy(to, &half, 2);
        } else if (to_dtype == DType::float16) {
            const auto half = static_cast<_Float16>(float_at(from, i, from_dtype));
            std::memcpy(to, &half, 2);
        } else {
            const float value = float_at(from, i, from_dtype);
            std::memcpy(to, &value, 4);
        }
    }
    return result;
}

struct Case {
    std::size_t count = 0;  // elements a row
    std::int64_t rows = 1;
    std::size_t from_gap = 0, to_gap = 0;  // elements
    std::size_t shift = 0;                 // of the target, bytes
    DType from_dtype = DType::bfloat16, to_dtype = DType::bfloat16;
    bool non_temporal = true, hashes = true;
};

void run_case(const Case& c, std::mt19937& generator) {
    SCOPED_TRACE(::testing::Message()
                 << c.rows << " rows of " << c.count << " " << dtype_name(c.from_dtype) << " to "
                 << dtype_name(c.to_dtype) << ", gaps " << c.from_gap << " " << c.to_gap << ", shift "
                 << c.shift << (c.non_temporal ? ", streamed" : ""));
    const std::size_t from_size = dtype_size(c.from_dtype), to_size = dtype_size(c.to_dtype);
    const std::size_t from_stride = (c.count + c.from_gap) * from_size;
    const std::size_t to_stride = (c.count + c.to_gap) * to_size;
    const auto rows = static_cast<std::size_t>(c.rows);
    const auto from = random_row_bytes(generator, rows * from_stride + from_size);
    std::vector<std::byte> to(rows * to_stride + 128, std::byte{0xee}), wanted = to, packed;
    for (std::size_t row = 0; row < rows; ++row) {
        const auto values = cast(from.data() + row * from_stride, c.count, c.from_dtype, c.to_dtype);
        std::copy(values.begin(), values.end(),
                  wanted.begin() + static_cast<std::ptrdiff_t>(c.shift + row * to_stride));
        packed.insert(packed.end(), values.begin(), values.end());
    }
    Checksum sum;
    CopyItem item{.from = {from.data(), c.count * from_size},
                  .to = {to.data() + c.shift, c.count * to_size},
                  .from_dtype = c.from_dtype,
                  .to_dtype = c.to_dtype,
                  .checksum = c.hashes ? &sum : nullptr,
                  .non_temporal = c.non_temporal,
                  .rows = c.rows,
                  .from_stride = from_stride,
                  .to_stride = to_stride};
    Stream stream = Stream::make_inline();
    ops::batched_copy(stream, std::span(&item, 1));
    ASSERT_EQ(to, wanted);
    if (c.hashes) {
        ASSERT_EQ(sum, reference(packed));
    }
    item.to.data = nullptr;
    item.to_stride = 0;
    ASSERT_EQ(ops::copy_checksum(item), reference(packed));
    item.checksum = &sum;
    sum = {};
    ops::batched_copy(stream, std::span(&item, 1));
    ASSERT_EQ(sum, reference(packed));
}

TEST(CopyRows, EveryKindOfRow) {
    std::mt19937 generator(1);
    constexpr std::size_t kCounts[] = {0, 1, 31, 32, 100, 256, 1000, 1024, 1280, 2500};
    constexpr DType kCasts[][2] = {{DType::bfloat16, DType::bfloat16}, {DType::float32, DType::bfloat16},
                                   {DType::bfloat16, DType::float32},  {DType::float16, DType::float32},
                                   {DType::float32, DType::float16},   {DType::float16, DType::bfloat16},
                                   {DType::bfloat16, DType::float16},  {DType::uint8, DType::uint8}};
    for (const std::size_t count : kCounts) {
        for (const auto& dtypes : kCasts) {
            for (const std::size_t gaps : {0u, 1u, 2u, 3u}) {
                for (const int flags : {0, 1, 2, 3}) {
                    const Case c{.count = count,
                                 .rows = 7,
                                 .from_gap = (gaps & 1u) != 0 ? 64u : 0u,
                                 .to_gap = (gaps & 2u) != 0 ? 96u : 0u,
                                 .shift = count % 3 == 0 ? 0u : 4u,
                                 .from_dtype = dtypes[0],
                                 .to_dtype = dtypes[1],
                                 .non_temporal = (flags & 1) != 0,
                                 .hashes = (flags & 2) != 0};
                    ASSERT_NO_FATAL_FAILURE(run_case(c, generator));
                }
            }
        }
    }
}

TEST(CopyRows, AtRandom) {
    std::mt19937 generator(2);
    const auto pick = [&](std::size_t below) { return static_cast<std::size_t>(generator()) % below; };
    for (int i = 0; i < 400; ++i) {
        Case c{.count = pick(2) == 0 ? pick(200) : 32 * pick(80),
               .rows = static_cast<std::int64_t>(pick(40)),
               .from_gap = pick(3) == 0 ? 0 : pick(300),
               .to_gap = pick(3) == 0 ? 0 : pick(300),
               .shift = pick(2) == 0 ? 0 : pick(64),
               .non_temporal = pick(2) == 0,
               .hashes = pick(4) != 0};
        constexpr DType kFloats[] = {DType::float32, DType::bfloat16, DType::float16};
        c.from_dtype = kFloats[pick(3)];
        c.to_dtype = kFloats[pick(3)];
        ASSERT_NO_FATAL_FAILURE(run_case(c, generator));
    }
}

TEST(CopyRows, RefusesRowsThatOverlap) {
    Stream stream = Stream::make_inline();
    std::vector<std::byte> from(64), to(64);
    const auto run = [&](std::int64_t rows, std::size_t from_stride, std::size_t to_stride) {
        const CopyItem item{.from = {from.data(), 16},
                            .to = {to.data(), 16},
                            .from_dtype = DType::float32,
                            .to_dtype = DType::float32,
                            .rows = rows,
                            .from_stride = from_stride,
                            .to_stride = to_stride};
        ops::batched_copy(stream, std::span(&item, 1));
    };
    EXPECT_NO_THROW(run(2, 16, 32));
    EXPECT_NO_THROW(run(1, 0, 0));
    EXPECT_NO_THROW(run(0, 0, 0));
    EXPECT_THROW(run(-1, 16, 16), InvalidArgument);
    EXPECT_THROW(run(2, 12, 16), InvalidArgument);
    EXPECT_THROW(run(2, 16, 12), InvalidArgument);
    EXPECT_THROW(run(2, 17, 16), InvalidArgument);
    EXPECT_THROW(run(2, 16, 18), InvalidArgument);
    const CopyItem unread{.from = {nullptr, 16}, .to = {nullptr, 16}};
    EXPECT_THROW(ops::copy_checksum(unread), InvalidArgument);
    const CopyItem unwanted{.from = {from.data(), 16},
                            .to = {nullptr, 16}};  // neither a target nor a checksum
    EXPECT_THROW(ops::batched_copy(stream, std::span(&unwanted, 1)), InvalidArgument);
}

// Cached copies may move data down over itself, or hash it where it lies.
TEST(CopyRows, CachedCopiesDownwardsAndInPlace) {
    std::mt19937 generator(3);
    Stream stream = Stream::make_inline();
    for (const std::size_t distance : {0u, 1u, 64u, 1000u}) {
        auto bytes = random_row_bytes(generator, 70001 + distance);
        const std::vector<std::byte> moved(bytes.begin() + static_cast<std::ptrdiff_t>(distance),
                                           bytes.end());
        Checksum sum;
        const CopyItem item{.from = {bytes.data() + distance, 70001},
                            .to = {bytes.data(), 70001},
                            .checksum = &sum,
                            .non_temporal = false};
        ops::batched_copy(stream, std::span(&item, 1));
        EXPECT_EQ(sum, reference(moved));
        bytes.resize(70001);
        EXPECT_EQ(bytes, moved) << distance;
    }
}

TEST(CopyKernels, EverySetHashesLinesLikeTheLibrary) {
    const auto all = testing::copy_kernels_here();
    std::mt19937 generator(4);
    for (const auto* kernels : all) {
        // Every number of stripes over more than two blocks, and what follows them.
        for (std::size_t first = 1; first <= 40; ++first) {
            for (const std::size_t second : {0u, 1u, 3u, 15u, 16u, 17u, 33u}) {
                for (const std::size_t rest : {0u, 1u, 63u, 64u, 300u}) {
                    const auto from = random_row_bytes(generator, (first + second) * 64 + rest);
                    std::vector<std::byte> to(from.size() + 1);
                    ops::detail::HashState state;
                    kernels->hash_begin(state);
                    kernels->hash_stream_lines(state, {from.data(), 0, to.data() + 1, 0, 1, first * 64});
                    if (second > 0) {
                        kernels->hash_store_lines(
                            state, {from.data() + first * 64, 64, to.data() + 1 + first * 64, 64,
                                    static_cast<std::int64_t>(second), 64});
                    }
                    kernels->fence();
                    ASSERT_EQ(std::memcmp(from.data(), to.data() + 1, (first + second) * 64), 0);
                    kernels->hash_update(state, from.data() + from.size() - rest, rest);
                    Checksum sum;
                    kernels->hash_end(state, sum.low, sum.high);
                    ASSERT_EQ(sum, reference(from)) << first << " " << second << " " << rest;
                    if (rest > 0) continue;
                    kernels->hash_begin(state);
                    kernels->hash_lines(state,
                                        {from.data(), 64, nullptr, 0, static_cast<std::int64_t>(first), 64});
                    if (second > 0) {
                        kernels->hash_lines(state, {from.data() + first * 64, 0, nullptr, 0, 1, second * 64});
                    }
                    kernels->hash_end(state, sum.low, sum.high);
                    ASSERT_EQ(sum, reference(from)) << first << " " << second;
                }
            }
        }
    }
}

}  // namespace
}  // namespace tandem
