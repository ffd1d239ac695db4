// delta_encode against a naive encoder that builds every encoding and takes the smallest, byte for byte; the
// round trip through delta_apply.
#include "common/ops/delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "common/error.h"
#include "common/ops/cpu/delta_apply.h"
#include "tests/unit/common/ops/random_bytes.h"

namespace tandem {
namespace {

using ops::DeltaCodec;
using ops::DeltaResult;
using ops::DeltaSource;
using testing::random_bytes;
using Bytes = std::vector<std::byte>;

struct Encoding {
    DeltaCodec codec = DeltaCodec::none;
    Bytes bytes;
    std::int64_t changed = 0;
};

Encoding naive(const Bytes& fresh, const Bytes& base, std::size_t width) {
    const std::size_t elements = fresh.size() / width;
    Bytes values, gaps, bitmap((elements + 7) / 8);
    std::uint32_t changed = 0;
    std::size_t gap = 0;
    for (std::size_t i = 0; i < elements; ++i, ++gap) {
        if (std::memcmp(fresh.data() + i * width, base.data() + i * width, width) == 0) continue;
        values.insert(values.end(), fresh.data() + i * width, fresh.data() + (i + 1) * width);
        for (; gap >= 255; gap -= 255) gaps.push_back(std::byte{255});
        gaps.push_back(static_cast<std::byte>(gap));
        gap = static_cast<std::size_t>(-1);
        bitmap[i / 8] |= std::byte{1} << (i % 8);
        ++changed;
    }
    if (changed == 0) return {};
    Bytes by_gaps(4);
    std::memcpy(by_gaps.data(), &changed, 4);
    for (const Bytes* part : {&values, &gaps}) by_gaps.insert(by_gaps.end(), part->begin(), part->end());
    Bytes by_bitmap = bitmap;
    by_bitmap.insert(by_bitmap.end(), values.begin(), values.end());
    Encoding best{DeltaCodec::dense, fresh, changed};
    if (by_bitmap.size() < best.bytes.size()) best = {DeltaCodec::bitmap, by_bitmap, changed};
    if (by_gaps.size() < best.bytes.size()) best = {DeltaCodec::gaps, by_gaps, changed};
    return best;
}

// Rows of `row` elements, `gap` bytes between them.
Bytes strided(const Bytes& packed, std::size_t row_bytes, std::size_t gap) {
    Bytes result;
    for (std::size_t at = 0; at < packed.size(); at += row_bytes) {
        result.insert(result.end(), packed.data() + at, packed.data() + at + row_bytes);
        result.insert(result.end(), gap, std::byte{0xee});
    }
    return result;
}

void round_trip(const Bytes& fresh, const Bytes& base, std::size_t width, std::int64_t rows = 1,
                std::size_t gap = 0) {
    const auto elements = static_cast<std::int64_t>(fresh.size() / width);
    const std::int64_t row = rows == 0 ? 0 : elements / rows;
    const std::size_t row_bytes = static_cast<std::size_t>(row) * width;
    const Bytes source = strided(fresh, row_bytes, gap);
    const DType dtype = width == 2 ? DType::bfloat16 : DType::float32;
    Bytes now = base;
    Bytes to(ops::delta_capacity(elements, width));  // exactly: a byte too many is found by the sanitizer
    const DeltaResult result = ops::delta_encode({source.data(), row_bytes + gap, rows, row, dtype, dtype},
                                                 {now.data(), now.size()}, {to.data(), to.size()});
    const Encoding wanted = naive(fresh, base, width);
    ASSERT_EQ(result.codec, wanted.codec);
    ASSERT_EQ(result.changed, wanted.changed);
    to.resize(result.bytes);
    ASSERT_EQ(to, wanted.bytes);
    ASSERT_EQ(now, fresh);
    ASSERT_EQ(result.content, ops::checksum({fresh.data(), fresh.size()}));
    ASSERT_EQ(result.encoded, ops::checksum({to.data(), to.size()}));
    Bytes target = strided(base, row_bytes, gap);
    ops::delta_apply(result.codec, {to.data(), to.size()}, width, rows, row, target.data(), row_bytes + gap);
    ASSERT_EQ(target, source);
    if (result.codec == DeltaCodec::none || result.codec == DeltaCodec::dense) return;
    constexpr std::int32_t kFirst = 1000;
    std::vector<std::int32_t> positions(static_cast<std::size_t>(result.changed));
    const ConstSpan values =
        ops::delta_positions(result.codec, {to.data(), to.size()}, width, elements, kFirst, positions);
    std::size_t next = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(elements); ++i) {
        if (std::memcmp(fresh.data() + i * width, base.data() + i * width, width) == 0) continue;
        ASSERT_EQ(positions[next], kFirst + static_cast<std::int32_t>(i));
        ASSERT_EQ(std::memcmp(values.data + next++ * width, fresh.data() + i * width, width), 0);
    }
    ASSERT_EQ(next, positions.size());
    ASSERT_EQ(values.bytes, next * width);
}

Bytes flip(Bytes bytes, std::size_t element, std::size_t width, std::mt19937& generator) {
    bytes[element * width + generator() % width] ^= static_cast<std::byte>(1u << (generator() % 8));
    return bytes;
}

TEST(Delta, EveryPatternOfASmallRun) {
    std::mt19937 generator(1);
    for (const std::size_t width : {2u, 4u}) {
        for (std::size_t elements = 0; elements <= 11; ++elements) {
            const Bytes base = random_bytes(generator, elements * width);
            for (std::uint32_t pattern = 0; pattern < (1u << elements); ++pattern) {
                Bytes fresh = base;
                for (std::size_t i = 0; i < elements; ++i) {
                    if ((pattern >> i & 1u) != 0) fresh = flip(std::move(fresh), i, width, generator);
                }
                ASSERT_NO_FATAL_FAILURE(round_trip(fresh, base, width)) << elements << " " << pattern;
            }
        }
    }
}

// One and two changes anywhere in a run that is longer than a block, and gaps of every length around 255.
TEST(Delta, FewChangesAnywhere) {
    std::mt19937 generator(2);
    for (const std::size_t width : {2u, 4u}) {
        const Bytes base = random_bytes(generator, 1500 * width);
        for (std::size_t first = 0; first < 1500; ++first) {
            const Bytes fresh = flip(base, first, width, generator);
            ASSERT_NO_FATAL_FAILURE(round_trip(fresh, base, width)) << first;
            const std::size_t second = first + 1 + generator() % 600;
            if (second >= 1500) continue;
            ASSERT_NO_FATAL_FAILURE(round_trip(flip(fresh, second, width, generator), base, width))
                << first << " " << second;
        }
    }
}

TEST(Delta, EveryFractionOfRowsAtRandom) {
    std::mt19937 generator(3);
    for (int i = 0; i < 600; ++i) {
        const std::size_t width = generator() % 2 == 0 ? 2 : 4;
        const auto rows = static_cast<std::int64_t>(1 + generator() % 9);
        const std::size_t elements = static_cast<std::size_t>(rows) * (1 + generator() % 700);
        const double fraction =
            i % 5 == 0 ? (i % 2 == 0 ? 1.0 : 0.97) : std::pow(generator() % 1000 / 1000.0, 3);
        const Bytes base = random_bytes(generator, elements * width);
        Bytes fresh = base;
        std::bernoulli_distribution changes(fraction);
        for (std::size_t e = 0; e < elements; ++e) {
            if (changes(generator)) fresh[e * width + generator() % width] ^= std::byte{0x10};
        }
        const std::size_t gap = generator() % 3 * 36;
        ASSERT_NO_FATAL_FAILURE(round_trip(fresh, base, width, rows, gap)) << i << " " << fraction;
    }
}

// A dense stretch somewhere, few changes elsewhere: gaps, bitmap and back.
TEST(Delta, DenseStretches) {
    std::mt19937 generator(8);
    for (int i = 0; i < 300; ++i) {
        const std::size_t width = i % 2 == 0 ? 2 : 4, elements = 2000 + generator() % 9000;
        const Bytes base = random_bytes(generator, elements * width);
        Bytes fresh = base;
        const std::size_t begin = generator() % elements, length = generator() % (elements / 3);
        for (std::size_t e = 0; e < elements; ++e) {
            const bool dense = e >= begin && e < begin + length;
            if (generator() % (dense ? 2 : 300) == 0) fresh[e * width] ^= std::byte{1};
        }
        ASSERT_NO_FATAL_FAILURE(round_trip(fresh, base, width)) << i;
    }
}

TEST(Delta, BitsNotValues) {
    // -0 is not 0, and a NaN equals itself only bit for bit.
    const std::uint32_t nan = 0x7fc00001u;
    const std::uint32_t old[] = {0, 0x80000000u, nan, nan, 0x3f800000u, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    std::uint32_t now[std::size(old)];
    std::copy(std::begin(old), std::end(old), now);
    now[0] = 0x80000000u;
    now[3] = 0x7fc00002u;
    const auto bytes = [](const std::uint32_t(&values)[std::size(old)]) {
        Bytes result(sizeof values);
        std::memcpy(result.data(), values, sizeof values);
        return result;
    };
    ASSERT_NO_FATAL_FAILURE(round_trip(bytes(now), bytes(old), 4));
    EXPECT_EQ(naive(bytes(now), bytes(old), 4).changed, 2);
}

TEST(Delta, OnePercentOfBfloat16TakesLessThanTwoPercent) {
    std::mt19937 generator(4);
    constexpr std::size_t kElements = 300000;
    const Bytes base = random_bytes(generator, 2 * kElements);
    Bytes fresh = base;
    for (std::size_t i = 0; i < kElements; ++i) {
        if (generator() % 100 == 0) fresh[2 * i] ^= std::byte{1};
    }
    ASSERT_NO_FATAL_FAILURE(round_trip(fresh, base, 2));
    const Encoding encoding = naive(fresh, base, 2);
    EXPECT_EQ(encoding.codec, DeltaCodec::gaps);
    EXPECT_LT(encoding.bytes.size(), 2 * kElements / 50);
}

// float32 weights, compared as the engine's bfloat16: a change that rounding hides is none.
TEST(Delta, CastsBeforeItCompares) {
    std::mt19937 generator(5);
    for (const std::int64_t rows : {1, 3, 17}) {
        for (const std::int64_t row : {1, 63, 1024, 1500}) {
            const auto elements = static_cast<std::size_t>(rows * row);
            const std::size_t stride = static_cast<std::size_t>(row) * 4 + 64;
            Bytes source = random_bytes(generator, static_cast<std::size_t>(rows) * stride);
            Bytes fresh(2 * elements);
            ops::CopyItem item{.from = {source.data(), static_cast<std::size_t>(row) * 4},
                               .to = {fresh.data(), static_cast<std::size_t>(row) * 2},
                               .from_dtype = DType::float32,
                               .to_dtype = DType::bfloat16,
                               .rows = rows,
                               .from_stride = stride,
                               .to_stride = static_cast<std::size_t>(row) * 2};
            Stream stream = Stream::make_inline();
            ops::batched_copy(stream, std::span(&item, 1));
            const DeltaSource from{source.data(), stride, rows, row, DType::float32, DType::bfloat16};
            Bytes base = fresh, to(2 * elements);
            DeltaResult result = ops::delta_encode(from, {base.data(), base.size()}, {to.data(), to.size()});
            EXPECT_EQ(result.codec, DeltaCodec::none);
            EXPECT_EQ(result.bytes, 0u);
            EXPECT_EQ(result.content, ops::copy_checksum(item));
            for (std::size_t i = 0; i < elements; i += 50) base[2 * i] ^= std::byte{1};
            const Encoding wanted = naive(fresh, base, 2);
            result = ops::delta_encode(from, {base.data(), base.size()}, {to.data(), to.size()});
            EXPECT_EQ(base, fresh);
            EXPECT_EQ(result.codec, wanted.codec);
            to.resize(result.bytes);
            EXPECT_EQ(to, wanted.bytes);
            EXPECT_EQ(result.content, ops::copy_checksum(item));
        }
    }
}

TEST(Delta, RefusesWhatDoesNotFit) {
    Bytes memory(64), base(64), to(64);
    const auto encode = [&](DType from, DType as, std::size_t base_bytes, std::size_t room) {
        ops::delta_encode({memory.data(), 0, 1, 8, from, as}, {base.data(), base_bytes}, {to.data(), room});
    };
    EXPECT_NO_THROW(encode(DType::float32, DType::bfloat16, 16, 16));
    EXPECT_THROW(encode(DType::float32, DType::bfloat16, 32, 16), InvalidArgument);
    EXPECT_THROW(encode(DType::float32, DType::float32, 32, 31), InvalidArgument);
    EXPECT_THROW(encode(DType::int32, DType::int32, 32, 32), InvalidArgument);
    EXPECT_THROW(ops::delta_apply(DeltaCodec::none, {}, 3, 1, 8, to.data(), 0), InvalidArgument);
    EXPECT_THROW(ops::delta_apply(DeltaCodec::none, {}, 2, -1, 8, to.data(), 0), InvalidArgument);
    EXPECT_THROW(ops::delta_apply(DeltaCodec::none, {}, 2, 2, 8, to.data(), 15), InvalidArgument);
    const std::byte bitmap[] = {std::byte{2}, std::byte{7}, std::byte{7}};
    std::vector<std::int32_t> two(2);
    EXPECT_THROW(ops::delta_positions(DeltaCodec::bitmap, {bitmap, 3}, 2, 4, 0, two), ProtocolError);
}

// Whatever the bytes: either a ProtocolError and nothing written, or writes within the rows.
TEST(Delta, GarbageIsRefusedBeforeAnythingIsWritten) {
    std::mt19937 generator(6);
    int refused = 0, applied = 0;
    for (int i = 0; i < 60000; ++i) {
        const std::size_t width = generator() % 2 == 0 ? 2 : 4;
        const auto rows = static_cast<std::int64_t>(generator() % 4);
        const auto row = static_cast<std::int64_t>(generator() % 40);
        const std::size_t row_bytes = static_cast<std::size_t>(row) * width;
        const std::size_t stride = row_bytes + generator() % 2 * 8;
        Bytes encoded = random_bytes(generator, generator() % 60);
        if (i % 2 == 0) {  // a likely count, small gaps
            const std::uint32_t count = generator() % 10;
            if (encoded.size() >= 4) std::memcpy(encoded.data(), &count, 4);
            for (std::size_t b = 4; b < encoded.size(); ++b) encoded[b] &= std::byte{7};
        }
        const auto codec = static_cast<DeltaCodec>(generator() % 5);
        Bytes target(static_cast<std::size_t>(rows) * stride, std::byte{0xee});
        const Bytes before = target;
        try {
            ops::delta_apply(codec, {encoded.data(), encoded.size()}, width, rows, row, target.data(),
                             stride);
            ++applied;
            for (std::size_t at = 0; at < target.size(); ++at) {
                ASSERT_TRUE(at % stride < row_bytes || target[at] == std::byte{0xee});
            }
        } catch (const ProtocolError&) {
            ++refused;
            ASSERT_EQ(target, before);
        }
    }
    EXPECT_GT(refused, 1000);
    EXPECT_GT(applied, 100);
}

// A peer may write between the check and the use.
TEST(Delta, MarksThatChangeAfterTheCheckWriteNothingElsewhere) {
    std::mt19937 generator(8);
    constexpr std::size_t kAround = 4096;  // bytes on each side that must stay as they are
    constexpr std::size_t kRows = 3, kRow = 21;
    int refused = 0;
    for (int i = 0; i < 4000; ++i) {
        const std::size_t width = generator() % 2 == 0 ? 2 : 4;
        const std::size_t row_bytes = kRow * width, stride = row_bytes + 8;
        Bytes base(kRows * row_bytes), fresh = base, to(base.size());
        for (std::size_t e = 0; e < kRows * kRow; ++e)
            if (generator() % 9 == 0) fresh[e * width] = std::byte{1};
        const DType dtype = width == 2 ? DType::bfloat16 : DType::float32;
        const DeltaResult delta = ops::delta_encode({fresh.data(), 0, 1, kRows * kRow, dtype, dtype},
                                                    {base.data(), base.size()}, {to.data(), to.size()});
        if (delta.codec != DeltaCodec::gaps && delta.codec != DeltaCodec::bitmap) continue;
        to.resize(delta.bytes);
        to.shrink_to_fit();  // for the address sanitizer
        const auto parts = ops::detail::check_delta(delta.codec, {to.data(), to.size()}, width, kRows * kRow);
        const auto marks = static_cast<std::size_t>(parts.marks.data - to.data());
        for (int flips = 0; flips < 3; ++flips)
            to[marks + generator() % parts.marks.bytes] =
                static_cast<std::byte>(generator() % 2 == 0 ? 254 : generator());
        Bytes target(kAround + kRows * stride + kAround, std::byte{0xee});
        try {
            ops::detail::write_delta(delta.codec, parts,
                                     {target.data() + kAround, width, kRows, kRow, stride});
        } catch (const ProtocolError&) {
            ++refused;
        }
        for (std::size_t at = 0; at < target.size(); ++at) {
            const bool element =
                at >= kAround && at < kAround + kRows * stride && (at - kAround) % stride < row_bytes;
            ASSERT_TRUE(element || target[at] == std::byte{0xee}) << at;
        }
    }
    EXPECT_GT(refused, 1000);
}

TEST(Delta, EachKindOfGarbageByItself) {
    Bytes target(40, std::byte{0xee});
    const auto apply = [&](DeltaCodec codec, std::vector<int> bytes, std::int64_t elements) {
        Bytes encoded;
        for (const int b : bytes) encoded.push_back(static_cast<std::byte>(b));
        ops::delta_apply(codec, {encoded.data(), encoded.size()}, 2, 1, elements, target.data(), 0);
    };
    const DeltaCodec gaps = DeltaCodec::gaps, bitmap = DeltaCodec::bitmap;
    EXPECT_NO_THROW(apply(gaps, {1, 0, 0, 0, 7, 7, 19}, 20));
    EXPECT_THROW(apply(gaps, {1, 0, 0}, 20), ProtocolError);                            // no count
    EXPECT_THROW(apply(gaps, {1, 0, 0, 0, 7, 7, 20}, 20), ProtocolError);               // past the end
    EXPECT_THROW(apply(gaps, {2, 0, 0, 0, 7, 7, 1}, 20), ProtocolError);                // values missing
    EXPECT_THROW(apply(gaps, {1, 0, 0, 0, 7, 7, 1, 1}, 20), ProtocolError);             // a gap too many
    EXPECT_THROW(apply(gaps, {1, 0, 0, 0, 7, 7, 1, 255}, 400), ProtocolError);          // ends in no change
    EXPECT_THROW(apply(gaps, {255, 255, 255, 255, 7, 7, 1, 255}, 400), ProtocolError);  // a huge count
    EXPECT_NO_THROW(apply(bitmap, {0x80, 2, 7, 7, 8, 8}, 10));
    EXPECT_THROW(apply(bitmap, {0x80}, 10), ProtocolError);                 // half a bitmap
    EXPECT_THROW(apply(bitmap, {0x80, 4, 7, 7, 8, 8}, 10), ProtocolError);  // a bit past the end
    EXPECT_THROW(apply(bitmap, {0x80, 2, 7, 7, 8}, 10), ProtocolError);     // half a value
    EXPECT_THROW(apply(bitmap, {0x80, 2, 7, 7, 8, 8, 9, 9}, 10), ProtocolError);
    EXPECT_THROW(apply(DeltaCodec::dense, {1, 2, 3}, 2), ProtocolError);
    EXPECT_THROW(apply(DeltaCodec::none, {1}, 2), ProtocolError);
    EXPECT_THROW(apply(static_cast<DeltaCodec>(9), {}, 2), ProtocolError);
    EXPECT_EQ(target[38], std::byte{7});
    EXPECT_EQ(target[14], std::byte{7});
    EXPECT_EQ(target[18], std::byte{8});
    EXPECT_EQ(std::count(target.begin(), target.end(), std::byte{0xee}), 40 - 6);
}

}  // namespace
}  // namespace tandem
