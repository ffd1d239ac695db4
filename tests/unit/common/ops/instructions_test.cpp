// The instructions of common/ops/cuda/instructions.cuh as the host does them. Compiled like the kernels, with
// instrumentation.
#include "common/ops/cuda/instructions.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/error_of.h"
#include "tests/support/kernels_on_host_counts.h"

namespace tandem::ops::on_host {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename Kernel>
std::string told(const Kernel& kernel, int threads = 32, std::size_t shared_bytes = 0) {
    return test::error_of([&] { fibers::run_blocks(1, threads, shared_bytes, kernel); });
}

// --- matrices out of shared memory ---

constexpr int kRows = 32, kColumns = 64;  // a tile of bfloat16

// A tile of numbers row · 64 + column as bits, its chunks of 16 bytes swizzled or not.
SharedAddress chunk_of(const unsigned char* tile, unsigned row, unsigned chunk, bool swizzled) {
    return shared_address(tile) + row * 2 * kColumns + 16 * (swizzled ? chunk ^ row % 8 : chunk);
}
void write_tile(unsigned char* tile, bool swizzled) {
    for (unsigned column = 0; column < kColumns; ++column) {
        const auto bits = static_cast<std::uint16_t>(threadIdx.x * kColumns + column);
        auto* const chunk =
            reinterpret_cast<std::uint16_t*>(chunk_of(tile, threadIdx.x, column / 8, swizzled));
        chunk[column % 8] = bits;
    }
}
constexpr std::size_t kTileBytes = kRows * kColumns * 2 + 1024;
unsigned char* aligned_tile(unsigned char* memory) {
    return memory + (1024 - reinterpret_cast<std::uintptr_t>(memory) % 1024) % 1024;
}

std::uint32_t numbers(unsigned row, unsigned column, unsigned next_row, unsigned next_column) {
    return (row * kColumns + column) | (next_row * kColumns + next_column) << 16;
}

TEST(MatrixLoads, GiveTheOperandsOfProducts) {
    const unsigned r0 = 16, k0 = 32;
    std::uint32_t as_a[32][4], as_b[32][4], as_weights[32][4];
    EXPECT_THAT(told(
                    [&] {
                        TANDEM_DYNAMIC_SHARED(memory);
                        unsigned char* const tile = aligned_tile(memory);
                        write_tile(tile, true);
                        __syncthreads();
                        const unsigned lane = threadIdx.x;
                        const auto at = [&](unsigned row, unsigned chunk) {
                            return chunk_of(tile, r0 + row, k0 / 8 + chunk, true);
                        };
                        load_matrices(as_a[lane], at(lane % 16, lane / 16));
                        load_matrices(as_b[lane], at(lane % 8 + 8 * (lane / 16), lane / 8 % 2));
                        load_matrices_transposed(as_weights[lane], at(lane % 16, lane / 16));
                    },
                    32, kTileBytes),
                IsEmpty());
    for (unsigned lane = 0; lane < 32; ++lane) {
        const unsigned g = lane / 4, t = lane % 4;
        // Neighbours along the row, of a tile that begins at r0, k0.
        const auto along = [&](unsigned row, unsigned column) {
            return numbers(r0 + row, k0 + column, r0 + row, k0 + column + 1);
        };
        const auto down = [&](unsigned row, unsigned column) {
            return numbers(r0 + row, k0 + column, r0 + row + 1, k0 + column);
        };
        for (unsigned i = 0; i < 4; ++i) {
            EXPECT_EQ(as_a[lane][i], along(g + 8 * (i % 2), 2 * t + 8 * (i / 2))) << lane << ' ' << i;
            EXPECT_EQ(as_b[lane][i], along(g + 8 * (i / 2), 2 * t + 8 * (i % 2))) << lane << ' ' << i;
            EXPECT_EQ(as_weights[lane][i], down(2 * t + 8 * (i % 2), g + 8 * (i / 2))) << lane << ' ' << i;
        }
    }
}

TEST(MatrixLoads, CountBankConflicts) {
    const auto conflicts = [](bool swizzled, unsigned rows, bool transposed) {
        fibers::take_counts();
        EXPECT_THAT(told(
                        [=] {
                            TANDEM_DYNAMIC_SHARED(memory);
                            unsigned char* const tile = aligned_tile(memory);
                            write_tile(tile, swizzled);
                            __syncthreads();
                            std::uint32_t r[4];
                            const SharedAddress row = chunk_of(tile, threadIdx.x % rows, 3, swizzled);
                            if (transposed) {
                                load_matrices_transposed(r, row);
                            } else {
                                load_matrices(r, row);
                            }
                        },
                        32, kTileBytes),
                    IsEmpty());
        const fibers::Counts counts = fibers::take_counts();
        EXPECT_EQ(counts.matrix_loads, 1);
        EXPECT_EQ(counts.products, 0);
        return counts.bank_conflicts;
    };
    EXPECT_EQ(conflicts(true, 32, false), 0);
    EXPECT_EQ(conflicts(false, 32, false), 4 * 7);
    EXPECT_EQ(conflicts(false, 32, true), 4 * 7);
    EXPECT_EQ(conflicts(false, 1, false), 0);  // one row for all: read once
    EXPECT_EQ(conflicts(false, 2, false), 4);
}

TEST(MatrixLoads, AreReadsOfTheirRows) {
    const auto load = [](bool writes, bool barrier, unsigned beside) {
        return told(
            [=] {
                TANDEM_DYNAMIC_SHARED(memory);
                unsigned char* const tile = aligned_tile(memory);
                if (writes) write_tile(tile, true);
                if (barrier) __syncwarp();
                std::uint32_t r[4];
                load_matrices(r, chunk_of(tile, 31 - threadIdx.x, 0, true) + beside);
            },
            32, kTileBytes);
    };
    EXPECT_THAT(load(true, true, 0), IsEmpty());
    EXPECT_THAT(load(true, false, 0), HasSubstr("nothing between that orders them"));
    EXPECT_THAT(load(false, true, 0), HasSubstr("which the block has not written"));
    EXPECT_THAT(load(true, true, 8), HasSubstr("no multiple of 16"));
    EXPECT_THAT(load(true, true, 1 << 20), HasSubstr("not in shared memory"));
}

// --- 2^x ---

TEST(FastExp2, IsCloseAndExactForWholeNumbers) {
    for (int n = -126; n < 128; ++n) EXPECT_EQ(fast_exp2(static_cast<float>(n)), std::ldexp(1.0f, n));
    for (float x = -126.0f; x < 128.0f; x += 0.0371f) {
        const double wanted = std::exp2(double{x});
        EXPECT_NEAR(fast_exp2(x), wanted, 2.5e-7 * wanted) << x;
    }
    EXPECT_EQ(fast_exp2(-kInfinity), 0.0f);
    EXPECT_EQ(fast_exp2(-126.5f), 0.0f);
    EXPECT_EQ(fast_exp2(128.0f), kInfinity);
    EXPECT_TRUE(std::isnan(fast_exp2(std::nanf(""))));
}

}  // namespace
}  // namespace tandem::ops::on_host
