// Products of warpgroups as the host does them. Compiled like the kernels, with instrumentation.
#include "common/ops/cuda/warpgroup.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/ops/shared/bits.h"
#include "tests/support/error_of.h"
#include "tests/support/kernel_mutations.h"
#include "tests/support/kernels_on_host_counts.h"

namespace tandem::ops::on_host {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kGroup = 128, kRowsOfA = 64, kTerms = 64;

std::string told_of(const std::function<void()>& kernel, std::size_t shared_bytes) {
    return test::error_of([&] { fibers::run_blocks(1, kGroup, shared_bytes, kernel); });
}

// Small whole numbers, so that all sums are exact.
float a_of(int row, int term) {
    return static_cast<float>((row * 7 + term * 3) % 13 - 6);
}
float b_of(int term, int column) {
    return static_cast<float>((column * 5 + term * 11) % 17 - 8);
}

// Sub-tiles of as many columns as the swizzle has, [columns / width][rows][width].
struct SharedTile {
    SharedAddress start;
    int rows, swizzle;
    SharedAddress at(int row, int column) const {
        const int width = swizzle / 2;
        const SharedAddress address = start + (column / width * rows + row) * swizzle + column % width * 2;
        return address ^ (address >> 7 & (swizzle / 16 - 1)) << 4;
    }
    void put(int row, int column, float value) const {
        *reinterpret_cast<std::uint16_t*>(at(row, column)) = shared::bfloat16_bits(value);
    }
};

// What a kernel does wrong.
enum class Wrong { nothing, touches_sums, changes_sums, changes_a, overwrites_tile, two_tiles };

// d = a b, with b as rows of terms or, transposed, as terms of rows.
template <int kColumns, bool kTransposed, bool kRegisters, int kSwizzle>
__global__ void product_of_tiles(float* out, Wrong wrong) {
    TANDEM_DYNAMIC_SHARED(memory);
    constexpr int kWidth = kSwizzle / 2;
    const SharedAddress base = (shared_address(memory) + 1023) / 1024 * 1024;
    const SharedTile a{base, kRowsOfA, kSwizzle};
    const SharedTile b{base + kRowsOfA * kTerms * 2, kTransposed ? kTerms : kColumns, kSwizzle};
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
    fence_products();
    for (int i = thread; i < kRowsOfA * kTerms; i += kGroup)
        a.put(i / kTerms, i % kTerms, a_of(i / kTerms, i % kTerms));
    for (int i = thread; i < kColumns * kTerms; i += kGroup) {
        const int column = i / kTerms, term = i % kTerms;
        b.put(kTransposed ? term : column, kTransposed ? column : term, b_of(term, column));
    }
    fence_proxies();
    __syncthreads();

    float d[kColumns / 2];
    for (float& sum : d) sum = 0.0f;
    std::uint32_t registers[kTerms / 16][4];
    for (int step = 0; step < kTerms / 16; ++step) {
        for (int i = 0; i < 4; ++i) {
            const int row = 16 * warp + lane / 4 + 8 * (i % 2),
                      term = 16 * step + 2 * (lane % 4) + 8 * (i / 2);
            registers[step][i] = shared::bfloat16_bits(a_of(row, term)) |
                                 std::uint32_t{shared::bfloat16_bits(a_of(row, term + 1))} << 16;
        }
    }
    fence_products();
    if (wrong == Wrong::changes_sums) d[3] = 1.0f;
    for (int step = 0; step < kTerms / 16; ++step) {
        const unsigned sub = 16 * step / kWidth, within = 16 * step % kWidth;
        const SharedAddress rows = b.start + sub * kColumns * kSwizzle + 2 * within;
        const std::uint64_t tile =
            kTransposed
                ? product_tile(b.start + step * 16 * kSwizzle, kTerms * kSwizzle, 8 * kSwizzle, kSwizzle)
                : product_tile(wrong == Wrong::two_tiles && lane == 3 ? b.start : rows, 16, 8 * kSwizzle,
                               kSwizzle);
        if constexpr (kRegisters) {
            multiply_tile<kColumns, kTransposed>(d, registers[step], tile, true);
        } else {
            multiply_tiles<kColumns, kTransposed>(
                d, product_tile(a.start + sub * kRowsOfA * kSwizzle + 2 * within, 16, 8 * kSwizzle, kSwizzle),
                tile, step > 0);
        }
    }
    commit_products();
    if (wrong == Wrong::touches_sums) d[5] += 1.0f;
    if (wrong == Wrong::changes_a) registers[0][2] ^= 1;
    if (wrong == Wrong::overwrites_tile && thread == 77) b.put(0, 0, 1.0f);
    wait_for_products<0>();
    for (int i = 0; i < kColumns / 2; ++i) {
        const int row = 16 * warp + lane / 4 + 8 * (i / 2 % 2), column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
        out[row * kColumns + column] = d[i];
    }
}

template <int kColumns, bool kTransposed, bool kRegisters, int kSwizzle>
std::string run_product(std::vector<float>& out, Wrong wrong = Wrong::nothing) {
    out.assign(kRowsOfA * kColumns, 0.0f);
    return told_of([&] { product_of_tiles<kColumns, kTransposed, kRegisters, kSwizzle>(out.data(), wrong); },
                   (kRowsOfA + kColumns) * kTerms * 2 + 1024);
}

template <int kColumns, bool kTransposed, bool kRegisters, int kSwizzle>
void expect_product() {
    std::vector<float> out;
    EXPECT_THAT((run_product<kColumns, kTransposed, kRegisters, kSwizzle>(out)), IsEmpty());
    for (int row = 0; row < kRowsOfA; ++row) {
        for (int column = 0; column < kColumns; ++column) {
            float sum = 0.0f;
            for (int term = 0; term < kTerms; ++term) sum += a_of(row, term) * b_of(term, column);
            ASSERT_EQ(out[static_cast<std::size_t>(row * kColumns + column)], sum) << row << ' ' << column;
        }
    }
}

TEST(WarpgroupProducts, OfTilesInAllForms) {
    fibers::take_counts();
    expect_product<64, false, false, 128>();
    EXPECT_EQ(fibers::take_counts().group_products, 4 * 4);
    expect_product<128, true, false, 128>();
    expect_product<64, false, true, 128>();
    expect_product<96, true, true, 64>();
    expect_product<96, false, false, 64>();
}

TEST(WarpgroupProducts, OwnTheirRegistersAndTilesUntilTheyAreWaitedFor) {
    std::vector<float> out;
    const auto run = [&](Wrong wrong) { return run_product<64, false, true, 128>(out, wrong); };
    EXPECT_THAT(run(Wrong::nothing), IsEmpty());
    EXPECT_THAT(run(Wrong::touches_sums), HasSubstr("sums were touched"));
    EXPECT_THAT(run(Wrong::changes_a), HasSubstr("registers have changed under way"));
    EXPECT_THAT(run(Wrong::overwrites_tile), HasSubstr("asynchronous proxy"));
    EXPECT_THAT(run(Wrong::two_tiles), HasSubstr("different tiles"));
}

// A second product of the same sums, changed meanwhile, with and without a fence.
TEST(WarpgroupProducts, NeedAFenceWhereSumsHaveChanged) {
    const auto run = [](bool fence, bool first_fence) {
        return told_of(
            [=] {
                TANDEM_DYNAMIC_SHARED(memory);
                const SharedTile b{(shared_address(memory) + 1023) / 1024 * 1024, 64, 128};
                if (threadIdx.x == 0) init_mbarrier(b.start + 8192, 1);
                __syncthreads();
                for (int i = threadIdx.x; i < 64 * 64; i += kGroup) b.put(i / 64, i % 64, 1.0f);
                fence_proxies();
                __syncthreads();
                float d[32] = {};
                const std::uint32_t a[4] = {};
                if (first_fence) fence_products();
                for (int turn = 0; turn < 2; ++turn) {
                    multiply_tile<64, false>(d, a, product_tile(b.start, 16, 1024, 128), true);
                    commit_products();
                    wait_for_products<0>();
                    d[7] += 1.0f;
                    if (fence) fence_products();
                }
            },
            8192 + 1024 + 8);
    };
    EXPECT_THAT(run(true, true), IsEmpty());
    EXPECT_THAT(run(false, true), HasSubstr("changed since the last fence"));
    EXPECT_THAT(run(true, false), HasSubstr("need a fence of products first"));
}

TEST(WarpgroupProducts, NothingCanBeLeftOut) {
    using fibers::LeftOut;
    std::vector<float> out(64 * 64);
    const auto run = [&] {
        fibers::run_blocks(1, kGroup, 2 * 64 * 64 * 2 + 1024,
                           [&] { product_of_tiles<64, false, false, 128>(out.data(), Wrong::nothing); });
    };
    for (const LeftOut what : {LeftOut::block_barrier, LeftOut::proxy_fence, LeftOut::product_commit,
                               LeftOut::product_wait, LeftOut::last_product_group}) {
        const fibers::Survivors result = leave_out(what, run);
        EXPECT_EQ(result.places, 1u) << static_cast<int>(what);
        EXPECT_THAT(result.survived, IsEmpty()) << static_cast<int>(what);
    }
}

// Boxes of a tensor through two stages: a producer, and a warpgroup that sums up their products.
__global__ void stream(const TensorMap map, float* out, int tiles, bool released_early) {
    TANDEM_DYNAMIC_SHARED(memory);
    constexpr int kStages = 2, kStageBytes = 64 * 64 * 2;
    const SharedAddress stages = (shared_address(memory) + 1023) / 1024 * 1024;
    const SharedAddress full = stages + kStages * kStageBytes, empty = full + 8 * kStages;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            init_mbarrier(full + 8 * i, 1);
            init_mbarrier(empty + 8 * i, 4);
        }
        fence_mbarriers();
    }
    __syncthreads();
    const auto parity = [](int tile) { return static_cast<unsigned>(tile / kStages % 2); };
    if (threadIdx.x < kGroup) {
        for (int tile = 0; threadIdx.x == 0 && tile < tiles; ++tile) {
            const int stage = tile % kStages;
            wait_for(empty + 8 * stage, parity(tile) ^ 1);
            arrive_expecting(full + 8 * stage, kStageBytes);
            copy_box(stages + stage * kStageBytes, map, full + 8 * stage, 0, 0, 64 * tile);
        }
        return;
    }
    const int thread = static_cast<int>(threadIdx.x) - kGroup, lane = thread % 32;
    float d[32] = {};
    const std::uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    fence_products();
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % kStages;
        wait_for(full + 8 * stage, parity(tile));
        for (int step = 0; step < 4; ++step) {
            const SharedAddress from = stages + stage * kStageBytes + 32 * step;
            multiply_tile<64, false>(d, ones, product_tile(from, 16, 1024, 128), true);
        }
        commit_products();
        if (released_early && lane == 0) arrive(empty + 8 * stage);
        wait_for_products<0>();
        if (!released_early && lane == 0) arrive(empty + 8 * stage);
    }
    for (int i = 0; i < 32; ++i) out[32 * thread + i] = d[i];
}

class Streams : public ::testing::Test {
  protected:
    static constexpr int kTiles = 5;
    void run(bool released_early) {
        const TensorMap map =
            fibers::tensor_map(tensor_.data(), {64, 1, 64 * kTiles}, {128, 128}, {64, 1, 64}, 128);
        fibers::run_blocks(1, 2 * kGroup, 2 * 64 * 64 * 2 + 1024 + 64,
                           [&] { stream(map, out_.data(), kTiles, released_early); });
    }
    // Rows of ones times the row's number modulo 8.
    Streams() {
        for (std::size_t i = 0; i < tensor_.size(); ++i)
            tensor_[i] = shared::bfloat16_bits(static_cast<float>(i / 64 % 8));
    }
    struct alignas(16) Aligned : std::array<std::uint16_t, 64 * 64 * kTiles> {};
    Aligned tensor_{};
    std::vector<float> out_ = std::vector<float>(32 * kGroup);
};

TEST_F(Streams, OfBoxesIntoProducts) {
    run(false);
    for (std::size_t i = 0; i < out_.size(); ++i) {
        const std::size_t column = i % 32 / 4 * 8 + i / 32 % 4 * 2 + i % 2;
        EXPECT_EQ(out_[i], static_cast<float>(64 * kTiles * (column % 8)));
    }
}

TEST_F(Streams, MustNotReleaseAStageBeforeItsProductsAreOver) {
    try {
        run(true);
        FAIL() << "nothing was reported";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("the asynchronous proxy reads it"));
    }
}

TEST_F(Streams, CanLeaveNothingOut) {
    using fibers::LeftOut;
    const std::pair<LeftOut, std::size_t> all[] = {
        {LeftOut::block_barrier, 1}, {LeftOut::mbarrier_arrival, 2}, {LeftOut::mbarrier_wait, 2},
        {LeftOut::product_fence, 1}, {LeftOut::product_commit, 1},   {LeftOut::product_wait, 1}};
    for (const auto& [what, places] : all) {
        const fibers::Survivors result = leave_out(what, [&] { run(false); });
        EXPECT_EQ(result.places, places) << static_cast<int>(what);
        EXPECT_THAT(result.survived, IsEmpty()) << static_cast<int>(what);
    }
}

}  // namespace
}  // namespace tandem::ops::on_host
