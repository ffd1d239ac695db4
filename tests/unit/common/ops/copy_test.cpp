// batched_copy against a plain loop, byte for byte, on every set of kernels that this machine runs; checksums
// against xxHash's own one-shot function.
#include "common/ops/batched_copy.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "common/error.h"
#include "common/tensor/dtype.h"
#include "tests/unit/common/ops/copy_kernels_here.h"
#include "tests/unit/common/ops/random_bytes.h"

namespace tandem {
namespace {

using ops::Checksum;
using ops::CopyItem;
using testing::random_bytes;

Checksum reference(const std::byte* data, std::size_t bytes) {
    const XXH128_hash_t hash = XXH3_128bits(data, bytes);
    return {.low = hash.low64, .high = hash.high64};
}

ConstSpan view(const std::vector<std::byte>& bytes) {
    return {bytes.data(), bytes.size()};
}

constexpr std::size_t kSizes[] = {0, 1, 3, 16, 63, 64, 65, 240, 241, 256, 1000, 65535, 65536, 65537, 200001};

TEST(BatchedCopy, BytesOfEverySizeAndAlignment) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(1);
    for (const std::size_t size : kSizes) {
        for (const std::size_t shift : {0u, 1u, 32u, 61u}) {
            for (const bool non_temporal : {true, false}) {
                const auto from = random_bytes(generator, size + 1);
                std::vector<std::byte> to(size + 128, std::byte{0xee});
                Checksum sum;
                const CopyItem item{.from = {from.data() + 1, size},
                                    .to = {to.data() + shift, size},
                                    .checksum = &sum,
                                    .non_temporal = non_temporal};
                ops::batched_copy(stream, std::span(&item, 1));
                std::vector<std::byte> wanted(size + 128, std::byte{0xee});
                std::copy(from.begin() + 1, from.end(), wanted.begin() + static_cast<std::ptrdiff_t>(shift));
                ASSERT_EQ(to, wanted) << size << " at " << shift;
                ASSERT_EQ(sum, reference(from.data() + 1, size)) << size;
            }
        }
    }
}

TEST(BatchedCopy, CastsRoundLikeTheClassAndHashWhatTheyWrite) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(2);
    for (const std::size_t count : {0u, 1u, 31u, 1000u, 32768u, 40001u}) {
        const auto from = random_bytes(generator, count * 4);  // every kind of float, NaN too
        std::vector<std::byte> narrow(count * 2), wide(count * 4);
        std::vector<bfloat16> wanted(count);
        std::vector<float> wanted_wide(count);
        for (std::size_t i = 0; i < count; ++i) {
            float value;
            std::memcpy(&value, from.data() + 4 * i, 4);
            wanted[i] = bfloat16(value);
            const std::uint32_t bits = static_cast<std::uint32_t>(wanted[i].bits) << 16;
            std::memcpy(&wanted_wide[i], &bits, 4);
        }
        Checksum sums[2];
        const CopyItem items[] = {{.from = view(from),
                                   .to = {narrow.data(), narrow.size()},
                                   .from_dtype = DType::float32,
                                   .to_dtype = DType::bfloat16,
                                   .checksum = &sums[0]},
                                  {.from = view(narrow),
                                   .to = {wide.data(), wide.size()},
                                   .from_dtype = DType::bfloat16,
                                   .to_dtype = DType::float32,
                                   .checksum = &sums[1],
                                   .non_temporal = false}};
        ops::batched_copy(stream, items);
        if (count > 0) {
            ASSERT_EQ(std::memcmp(narrow.data(), wanted.data(), narrow.size()), 0);
            ASSERT_EQ(std::memcmp(wide.data(), wanted_wide.data(), wide.size()), 0);
        }
        ASSERT_EQ(sums[0], reference(narrow.data(), narrow.size()));
        ASSERT_EQ(sums[1], reference(wide.data(), wide.size()));
    }
}

TEST(BatchedCopy, OnAWorkerStream) {
    Stream stream = Stream::make_worker("copy");
    std::mt19937 generator(3);
    const auto from = random_bytes(generator, 300000);
    std::vector<std::byte> middle(from.size()), to(from.size());
    Checksum first, second;
    {
        const CopyItem a{.from = view(from), .to = {middle.data(), middle.size()}, .checksum = &first};
        ops::batched_copy(stream, std::span(&a, 1));
        const CopyItem b{.from = view(middle), .to = {to.data(), to.size()}, .checksum = &second};
        ops::batched_copy(stream, std::span(&b, 1));
    }
    stream.synchronize();
    EXPECT_EQ(to, from);
    EXPECT_EQ(first, second);
    EXPECT_EQ(first, ops::checksum(view(from)));
}

TEST(BatchedCopy, RefusesWhatDoesNotFit) {
    Stream stream = Stream::make_inline();
    std::vector<std::byte> from(16), to(16);
    const auto run = [&](std::size_t from_bytes, std::size_t to_bytes, DType a, DType b) {
        const CopyItem item{
            .from = {from.data(), from_bytes}, .to = {to.data(), to_bytes}, .from_dtype = a, .to_dtype = b};
        ops::batched_copy(stream, std::span(&item, 1));
    };
    EXPECT_NO_THROW(run(16, 8, DType::float32, DType::bfloat16));
    EXPECT_THROW(run(16, 15, DType::uint8, DType::uint8), InvalidArgument);
    EXPECT_THROW(run(16, 16, DType::float32, DType::bfloat16), InvalidArgument);
    EXPECT_THROW(run(16, 16, DType::float32, DType::int32), InvalidArgument);
    EXPECT_THROW(run(15, 15, DType::float32, DType::float32), InvalidArgument);
}

TEST(Checksum, TextAndLists) {
    std::mt19937 generator(4);
    const auto bytes = random_bytes(generator, 5000);
    for (const std::size_t size : kSizes) {
        if (size > bytes.size()) break;
        EXPECT_EQ(ops::checksum({bytes.data(), size}), reference(bytes.data(), size)) << size;
    }
    const Checksum sum = ops::checksum(view(bytes));
    EXPECT_EQ(ops::to_hex(sum).size(), 32u);
    EXPECT_EQ(ops::checksum_from_hex(ops::to_hex(sum)), sum);
    EXPECT_EQ(ops::to_hex({.low = 1, .high = 0xab}), "00000000000000ab0000000000000001");
    EXPECT_THROW(ops::checksum_from_hex(""), ProtocolError);
    EXPECT_THROW(ops::checksum_from_hex(std::string(31, '0')), ProtocolError);
    EXPECT_THROW(ops::checksum_from_hex(std::string(31, '0') + "g"), ProtocolError);
    EXPECT_THROW(ops::checksum_from_hex("-" + std::string(31, '0')), ProtocolError);
    const Checksum other = ops::checksum({bytes.data(), 10});
    const Checksum list[] = {sum, other}, swapped[] = {other, sum};
    EXPECT_NE(ops::combine(list), ops::combine(swapped));
    EXPECT_EQ(ops::combine(list), ops::combine(list));
}

// The kernels of older machines, on this one.
TEST(CopyKernels, EverySetDoesTheSame) {
    const auto all = testing::copy_kernels_here();
    std::mt19937 generator(5);
    for (const std::size_t size : kSizes) {
        const auto from = random_bytes(generator, size);
        for (const auto* kernels : all) {
            std::vector<std::byte> to(size);
            kernels->stream_copy(from.data(), to.data(), size);
            kernels->fence();
            EXPECT_EQ(to, from);
            ops::detail::HashState state;
            kernels->hash_begin(state);
            kernels->hash_update(state, from.data(), size / 3);
            kernels->hash_update(state, from.data() + size / 3, size - size / 3);
            Checksum sum;
            kernels->hash_end(state, sum.low, sum.high);
            EXPECT_EQ(sum, reference(from.data(), size));
            std::vector<std::byte> narrow(size / 4 * 2);
            kernels->narrow(from.data(), narrow.data(), static_cast<std::int64_t>(size / 4));
            for (std::size_t i = 0; i < size / 4; ++i) {
                float value;
                std::memcpy(&value, from.data() + 4 * i, 4);
                bfloat16 half;
                std::memcpy(&half, narrow.data() + 2 * i, 2);
                ASSERT_EQ(half.bits, bfloat16(value).bits);
            }
        }
    }
}

}  // namespace
}  // namespace tandem
