// Buckets packed for TCP, against a naive oracle; names of engines with their options; the handshake's words.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "common/error.h"
#include "engine_adapter/tandem/url.h"
#include "engine_adapter/transport/tcp/handshake.h"
#include "engine_adapter/transport/tcp/packed.h"
#include "tests/support/error_of.h"

namespace tandem::engine {
namespace {

using test::error_of;
using testing::HasSubstr;

struct Rows {
    std::size_t from, rows, bytes, stride;
};

std::vector<std::byte> image(std::size_t bytes) {
    std::mt19937 random(7);
    std::vector<std::byte> data(bytes);
    for (std::byte& byte : data) byte = static_cast<std::byte>(random());
    return data;
}

std::vector<std::byte> packed_naively(const std::vector<std::byte>& memory, const std::vector<Rows>& all) {
    std::vector<std::byte> out;
    for (const Rows& one : all) {
        for (std::size_t r = 0; r < one.rows; ++r) {
            const auto row = memory.begin() + static_cast<std::ptrdiff_t>(one.from + r * one.stride);
            out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(one.bytes));
        }
        while (out.size() % kPackedAlign != 0) out.push_back(std::byte{0});
    }
    return out;
}

std::vector<std::byte> joined(const std::vector<iovec>& list) {
    std::vector<std::byte> out;
    for (const iovec& piece : list) {
        const auto* data = static_cast<const std::byte*>(piece.iov_base);
        out.insert(out.end(), data, data + piece.iov_len);
    }
    return out;
}

TEST(TcpPacked, AnyPartOfABucketIsTheNaiveOnes) {
    const std::vector<std::byte> memory = image(1 << 18);
    // Short rows apart, long rows apart, rows that follow each other, one row, a single byte.
    const std::vector<Rows> all{{3, 50, 6, 128},     {10'000, 7, 5000, 8192}, {80'000, 16, 512, 512},
                                {99'999, 1, 1, 0},   {120'000, 1, 70'000, 0}, {200'000, 3, 1023, 2000},
                                {210'000, 5, 64, 64}};
    PackedBucket bucket;
    for (const Rows& one : all) bucket.add(memory.data() + one.from, one.rows, one.bytes, one.stride);
    const std::vector<std::byte> expected = packed_naively(memory, all);
    ASSERT_EQ(bucket.bytes(), expected.size());
    std::mt19937 random(1);
    std::vector<iovec> list;
    std::vector<std::byte> scratch;
    for (int round = 0; round < 2000; ++round) {
        std::uint64_t begin = random() % (expected.size() + 1);
        std::uint64_t end = random() % (expected.size() + 1);
        if (begin > end) std::swap(begin, end);
        bucket.pieces(begin, end, list, scratch);
        const std::vector<std::byte> got = joined(list);
        ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + static_cast<std::ptrdiff_t>(begin),
                               expected.begin() + static_cast<std::ptrdiff_t>(end)))
            << begin << " to " << end;
        ASSERT_LE(list.size(), (end - begin) / 1024 * 2 + 3);
    }
}

TEST(TcpPacked, BothEndsAgreeOnWhereATransferBegins) {
    const std::vector<Transfer> bucket{{0, 0, 0, DType::bfloat16, 3, 5, 0, 100, 0, 10},
                                       {1, 0, 0, DType::float32, 1, 16, 64, 0, 0, 0},
                                       {1, 0, 0, DType::float32, 1, 1, 64, 0, 0, 0}};
    EXPECT_THAT(packed_offsets(bucket), testing::ElementsAre(0, 64, 128, 192));
    const std::vector<DeltaEntry> entries{{0, 3, 10, 65, {}}, {1, 0, 0, 0, {}}, {2, 3, 0, 1, {}}};
    EXPECT_THAT(packed_offsets(entries), testing::ElementsAre(0, 128, 128, 192));
    const std::vector<DeltaEntry> endless{{0, 3, 0, ~0ULL - 8, {}}, {1, 3, 0, ~0ULL, {}}};
    EXPECT_THROW(packed_offsets(endless), ProtocolError);
}

TEST(TcpHandshake, OnlyWhoKnowsTheSecretIsProven) {
    const Nonce engine = random_nonce(), trainer = random_nonce();
    const auto right = tcp::secret_of(tcp::Kind::control, "key");
    const auto wrong = tcp::secret_of(tcp::Kind::control, "Key");
    const auto data = tcp::secret_of(tcp::Kind::data, "key");
    const auto said = tcp::parse_hello(tcp::hello(tcp::Kind::control, right, engine, trainer));
    EXPECT_TRUE(tcp::proven(said, right, engine));
    EXPECT_FALSE(tcp::proven(said, wrong, engine));
    EXPECT_FALSE(tcp::proven(said, data, engine));
    EXPECT_FALSE(tcp::proven(said, right, random_nonce()));  // said again to another greeting
    const std::string yes = tcp::verdict(said, right, engine);
    EXPECT_TRUE(tcp::accepted(yes, tcp::Kind::control, right, engine, trainer));
    EXPECT_FALSE(tcp::accepted(yes, tcp::Kind::control, wrong, engine, trainer));
    EXPECT_FALSE(tcp::accepted(yes, tcp::Kind::data, right, engine, trainer));
    EXPECT_FALSE(tcp::accepted(tcp::refusal_verdict(), tcp::Kind::control, right, engine, trainer));
    std::string greeting = tcp::greeting(tcp::Asks::key, engine);
    EXPECT_EQ(tcp::parse_greeting(greeting).engine, engine);
    greeting[0] = 'H';
    EXPECT_THROW(tcp::parse_greeting(greeting), ProtocolError);
}

TEST(EngineUrl, HasOptionsOfTheWay) {
    const EngineUrl plain = parse_engine_url("tandem://10.0.0.2:30000");
    EXPECT_EQ(plain.base, "tandem://10.0.0.2:30000");
    EXPECT_FALSE(plain.options || plain.tcp);
    EXPECT_EQ(plain.tcp_options.pace_bytes_per_s, 0);
    const EngineUrl url = parse_engine_url("tandem://h:1?transport=tcp&connections=3&pace=1.5GB");
    EXPECT_EQ(url.base, "tandem://h:1");
    EXPECT_TRUE(url.options && url.tcp);
    EXPECT_EQ(url.tcp_options.connections, 3);
    EXPECT_EQ(url.tcp_options.pace_bytes_per_s, 1.5e9);
    EXPECT_EQ(parse_engine_url("unix:///a/b?pace=20KB").base, "unix:///a/b");
}

TEST(EngineUrl, AnOptionThatMakesNoSenseIsRefusedByName) {
    EXPECT_THAT(error_of([] { parse_engine_url("tandem://h:1?speed=3"); }), HasSubstr("no option 'speed'"));
    EXPECT_THAT(error_of([] { parse_engine_url("tandem://h:1?transport=shm"); }),
                HasSubstr("there are auto, tcp"));
    for (const char* count : {"0", "65", "x", "", "3x", "-1"}) {
        EXPECT_THAT(error_of([&] { parse_engine_url(std::string("tandem://h:1?connections=") + count); }),
                    HasSubstr("from 1 to 64"));
    }
    for (const char* pace : {"", "5", "GB", "-1MB", "0MB", "1e99GB", "5MBs"}) {
        EXPECT_THAT(error_of([&] { parse_engine_url(std::string("tandem://h:1?pace=") + pace); }),
                    HasSubstr("bytes a second like 500MB"));
    }
}

}  // namespace
}  // namespace tandem::engine
