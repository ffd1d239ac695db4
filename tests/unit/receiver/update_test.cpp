// The bookkeeping of a version against a naive one: a flag for every byte.
#include "engine_adapter/receiver/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/error.h"
#include "tests/unit/receiver/test_target.h"

namespace tandem::engine {
namespace {

TEST(Update, AgreesWithAFlagForEveryByteOnRandomRuns) {
    std::mt19937 random(11);
    const TestTarget target(
        {{"a", {37}, DType::uint8}, {"b", {20}, DType::uint8}, {"empty", {0}, DType::uint8}});
    const auto& weights = target.weights();
    int whole = 0;
    for (int round = 0; round < 2000; ++round) {
        Update update(weights, 1);
        std::vector<std::vector<int>> flags{std::vector<int>(37, 0), std::vector<int>(20, 0)};
        // Half of the rounds cut the tensors into true pieces, in random order; the others are random runs.
        std::vector<wire::Entry> entries;
        for (std::uint32_t t = 0; t < 2; ++t) {
            for (std::size_t at = 0; at < flags[t].size();) {
                const std::size_t step = std::min<std::size_t>(random() % 9 + 1, flags[t].size() - at);
                if (round % 2 == 0 || random() % 4 != 0)
                    entries.push_back({t, 0, at, 0, step, {random(), at}});
                at += round % 2 == 0 ? step : random() % 12 + 1;
            }
        }
        std::shuffle(entries.begin(), entries.end(), random);
        for (const wire::Entry& entry : entries) {
            auto& bytes = flags[entry.tensor];
            const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(entry.tensor_offset);
            const auto last = first + static_cast<std::ptrdiff_t>(entry.bytes);
            const bool fresh = std::all_of(first, last, [](int flag) { return flag == 0; });
            bool admitted = true;
            try {
                update.admit(0, {&entry, 1}, 4096);
            } catch (const ProtocolError&) {
                admitted = false;
            }
            ASSERT_EQ(admitted, fresh);
            if (fresh) std::fill(first, last, 1);
        }
        const bool all = std::all_of(flags.begin(), flags.end(), [](const auto& bytes) {
            return std::all_of(bytes.begin(), bytes.end(), [](int flag) { return flag == 1; });
        });
        bool accepted = true;
        try {
            update.require_whole();
        } catch (const ProtocolError&) {
            accepted = false;
        }
        ASSERT_EQ(accepted, all);
        if (!all) continue;
        ++whole;
        // The manifest, made naively: entries sorted by offset, each tensor's checksums combined.
        std::sort(entries.begin(), entries.end(), [](const auto& x, const auto& y) {
            return std::pair(x.tensor, x.tensor_offset) < std::pair(y.tensor, y.tensor_offset);
        });
        std::vector<std::vector<ops::Checksum>> parts(3);
        for (const auto& entry : entries) parts[entry.tensor].push_back(entry.checksum);
        std::vector<ops::Checksum> checksums;
        std::vector<TensorInfo> tensors;
        for (std::size_t t = 0; t < 3; ++t) {
            checksums.push_back(ops::combine(parts[t]));
            tensors.push_back(weights[t].info);
        }
        ASSERT_EQ(update.manifest(), manifest_checksum(1, tensors, checksums));
    }
    EXPECT_GE(whole, 1000);
}

TEST(Manifest, DependsOnEverythingThatItCovers) {
    const std::vector<TensorInfo> tensors{{"a", {2, 3}, DType::float32}, {"b", {4}, DType::bfloat16}};
    const std::vector<ops::Checksum> checksums{{1, 2}, {3, 4}};
    const ops::Checksum base = manifest_checksum(5, tensors, checksums);
    EXPECT_EQ(base, manifest_checksum(5, tensors, checksums));
    EXPECT_NE(base, manifest_checksum(6, tensors, checksums));
    EXPECT_NE(base, manifest_checksum(5, {tensors[1], tensors[0]}, {checksums[1], checksums[0]}));
    EXPECT_NE(base, manifest_checksum(5, tensors, {{1, 2}, {3, 5}}));
    auto other = tensors;
    other[0].shape = {3, 2};
    EXPECT_NE(base, manifest_checksum(5, other, checksums));
    other = tensors;
    other[1].dtype = DType::float32;
    EXPECT_NE(base, manifest_checksum(5, other, checksums));
    other = tensors;
    other[1].name.push_back('c');
    EXPECT_NE(base, manifest_checksum(5, other, checksums));
}

}  // namespace
}  // namespace tandem::engine
