// Every byte that a transfer reads lies in exactly one run, and where packed() says; runs are apart.
#include "engine_adapter/transport/nccl/runs.h"

#include <gtest/gtest.h>

#include <random>

#include "common/error.h"

namespace tandem::engine {
namespace {

Transfer transfer(std::uint32_t region, std::uint64_t from, std::uint64_t rows, std::uint64_t elements,
                  std::uint64_t stride) {
    return {0, 0, region, DType::bfloat16, rows, elements, from, stride, 0, 0};
}

TEST(Runs, HoldEveryByteThatIsRead) {
    std::mt19937 random(7);
    const auto up_to = [&](std::uint64_t n) { return random() % n; };
    for (int round = 0; round < 200; ++round) {
        std::vector<Transfer> bucket;
        for (std::uint64_t i = 0, count = 1 + up_to(12); i < count; ++i) {
            bucket.push_back(transfer(static_cast<std::uint32_t>(up_to(3)), 2 * up_to(20'000), 1 + up_to(6),
                                      1 + up_to(700), 2 * up_to(1500)));
        }
        const Runs runs = runs_of(bucket);
        std::vector<int> arrived(runs.bytes);
        for (std::size_t i = 0; i < runs.list.size(); ++i) {
            const auto& run = runs.list[i];
            ASSERT_EQ(run.packed % 256, run.offset % 256);
            for (std::uint64_t b = 0; b < run.bytes; ++b) ASSERT_EQ(++arrived.at(run.packed + b), 1);
            if (i > 0 && run.region == runs.list[i - 1].region) {
                ASSERT_GT(run.offset, runs.list[i - 1].offset + runs.list[i - 1].bytes);
            }
        }
        for (const Transfer& t : bucket) {
            for (std::uint64_t row = 0; row < t.rows; ++row) {
                const std::uint64_t end = t.from + row * t.from_stride + t.row_elements * 2 - 1;
                // Each byte of a transfer is as far from its beginning as in the region.
                ASSERT_EQ(runs.packed(t.region, end) - runs.packed(t.region, t.from), end - t.from);
                ASSERT_EQ(arrived.at(runs.packed(t.region, end)), 1);
            }
        }
    }
}

TEST(Runs, SmallGapsTravelAndLargeOnesDoNot) {
    const std::vector<Transfer> bucket{transfer(0, 0, 1, 100, 0), transfer(0, 256, 1, 100, 0),
                                       transfer(0, 8192, 1, 100, 0), transfer(1, 0, 1, 8, 0)};
    const Runs runs = runs_of(bucket);
    ASSERT_EQ(runs.list.size(), 3u);
    EXPECT_EQ(runs.list[0].bytes, 456u);
    EXPECT_THROW(runs.packed(0, 4096), InvalidArgument);
    EXPECT_THROW(runs.packed(2, 0), InvalidArgument);
    EXPECT_TRUE(runs_of({}).list.empty());
}

TEST(Runs, TooManyAreRefused) {
    std::vector<Transfer> bucket;
    for (std::uint64_t i = 0; i < 5000; ++i) bucket.push_back(transfer(0, 4096 * i, 1, 1, 0));
    EXPECT_THROW(runs_of(bucket), ProtocolError);
}

}  // namespace
}  // namespace tandem::engine
