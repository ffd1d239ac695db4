// The loops of delta_encode and delta_apply: every set that this machine runs, against loops over elements.
#include "common/ops/cpu/delta_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "common/ops/batched_copy.h"
#include "common/ops/cpu/instruction_sets.h"
#include "tests/unit/common/ops/copy_kernels_here.h"
#include "tests/unit/common/ops/random_bytes.h"

namespace tandem {
namespace {

using Bytes = std::vector<std::byte>;
using testing::random_bytes;

// Lines behind others, whose hash goes on; every other time they are written over base, too.
TEST(DeltaKernels, EverySetComparesAndHashesTheSame) {
    std::mt19937 generator(9);
    for (int i = 0; i < 300; ++i) {
        const std::size_t width = i % 2 == 0 ? 2 : 4, before = generator() % 3 * generator() % 9;
        const std::size_t count = 1 + generator() % 40, elements = count * 64 / width;
        const Bytes base = random_bytes(generator, count * 64);
        const Bytes head = random_bytes(generator, before * 64);
        Bytes fresh = base, bitmap(elements / 8);
        std::size_t changed = 0;
        const unsigned every = i % 20 == 0 ? 1 : 1 + generator() % 40;
        for (std::size_t e = 0; e < elements; ++e) {
            if (generator() % every != 0) continue;
            fresh[e * width + generator() % width] ^= std::byte{0x80};
            bitmap[e / 8] |= std::byte{1} << (e % 8);
            ++changed;
        }
        for (const auto* kernels : testing::copy_kernels_here()) {
            for (const bool renews : {false, true}) {
                ops::detail::HashState state;
                kernels->hash_begin(state);
                kernels->hash_update(state, head.data(), before * 64);
                Bytes old = base, bits(bitmap.size());
                const auto lines = renews       ? width == 2 ? kernels->renew2_lines : kernels->renew4_lines
                                   : width == 2 ? kernels->compare2_lines
                                                : kernels->compare4_lines;
                ASSERT_EQ(lines(state, fresh.data(), old.data(), count, bits.data()), changed);
                ASSERT_EQ(bits, bitmap);
                ASSERT_EQ(old, renews ? fresh : base);
                ops::Checksum sum;
                kernels->hash_end(state, sum.low, sum.high);
                Bytes joined = head;
                joined.insert(joined.end(), fresh.begin(), fresh.end());
                ASSERT_EQ(sum, ops::checksum({joined.data(), joined.size()})) << before << " " << count;
            }
        }
    }
}

Bytes gaps_between(const std::vector<std::uint16_t>& positions) {
    Bytes gaps;
    for (std::size_t i = 1; i < positions.size(); ++i) {
        int gap = positions[i] - positions[i - 1] - 1;
        for (; gap >= 255; gap -= 255) gaps.push_back(std::byte{255});
        gaps.push_back(static_cast<std::byte>(gap));
    }
    return gaps;
}

TEST(DeltaKernels, EverySetDoesTheSame) {
    using ops::detail::kDeltaSlack;
    std::vector<const ops::detail::DeltaKernels*> all = {&ops::detail::kDeltaBaseline};
    if (__builtin_cpu_supports("x86-64-v3")) all.push_back(&ops::detail::kDeltaAvx2);
    if (__builtin_cpu_supports("x86-64-v4")) all.push_back(&ops::detail::kDeltaAvx512);
    if (ops::detail::runs_vbmi2()) all.push_back(&ops::detail::kDeltaVbmi2);
    std::mt19937 generator(7);
    for (int i = 0; i < 400; ++i) {
        const std::size_t width = i % 2 == 0 ? 2 : 4;
        const std::size_t count = generator() % 2049;
        const Bytes base = random_bytes(generator, count * width);
        Bytes fresh = base, values, bitmap((count + 7) / 8);
        std::vector<std::uint16_t> positions;
        const unsigned every = i % 20 == 0 ? 1 : 1 + generator() % (i % 3 == 0 ? 400 : 40);
        for (std::size_t e = 0; e < count; ++e) {
            if (generator() % every != 0) continue;
            fresh[e * width + generator() % width] ^= std::byte{0x80};
            bitmap[e / 8] |= std::byte{1} << (e % 8);
            values.insert(values.end(), fresh.data() + e * width, fresh.data() + (e + 1) * width);
            positions.push_back(static_cast<std::uint16_t>(e));
        }
        for (const auto* kernels : all) {
            Bytes found(values.size() + kDeltaSlack);
            std::vector<std::uint16_t> where(positions.size() + kDeltaSlack / 2);
            (width == 2 ? kernels->pack2 : kernels->pack4)(fresh.data(), bitmap.data(), count, found.data());
            found.resize(values.size());
            ASSERT_EQ(found, values);
            Bytes target = base;
            const auto done = (width == 2 ? kernels->unpack2 : kernels->unpack4)(
                bitmap.data(), count / 64, values.data(), positions.size(), target.data());
            std::size_t next = 0;
            for (std::size_t e = 0; e < done.words * 64; ++e)
                next += std::to_integer<std::size_t>(bitmap[e / 8] >> (e % 8) & std::byte{1});
            ASSERT_EQ(done.values, next);
            ASSERT_TRUE(done.words == count / 64 || positions.size() - next < 64);
            Bytes wanted = base;
            std::copy_n(fresh.begin(), done.words * 64 * width, wanted.begin());
            ASSERT_EQ(target, wanted);
            ASSERT_EQ(kernels->positions(bitmap.data(), count, where.data()), positions.size());
            where.resize(positions.size());
            ASSERT_EQ(where, positions);
            if (positions.empty()) continue;
            where.resize(positions.size() + kDeltaSlack / 2);
            Bytes gaps(count + kDeltaSlack);
            gaps.resize(kernels->gaps(where.data(), positions.size(), gaps.data()));
            ASSERT_EQ(gaps, gaps_between(positions));
        }
    }
}

}  // namespace
}  // namespace tandem
