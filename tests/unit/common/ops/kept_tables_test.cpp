// Tables that ops bring from the host go to the device once, however many layers of a pass ask for them.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/ops/cuda/kept_tables.h"
#include "common/ops/rope.h"
#include "tests/gpu/ops/rig.h"
#include "tests/support/kernels_on_host_work.h"

namespace tandem::tests {
namespace {

using ops::KeptTables;

// What attention does in each layer of a pass, forward and backward, over packed sequences.
struct Layers {
    std::vector<std::int32_t> positions;
    std::vector<ops::AttentionSegment> segments;
    ops::RopeTable rope{{1.0f, 0.3f, 0.05f, 0.002f}};
    Tensor q = to_tested(random({20, 1, 8}, 1)), k = to_tested(random({20, 1, 8}, 2)),
           v = to_tested(random({20, 1, 8}, 3)), out = to_tested(zeros({20, 1, 8})),
           lse = to_tested(zeros({1, 20})), dq = to_tested(zeros({20, 1, 8})),
           dk = to_tested(zeros({20, 1, 8})), dv = to_tested(zeros({20, 1, 8}));

    explicit Layers(std::int32_t cut) : segments(ops::packed_segments({0, cut, 20})) {
        for (std::int32_t i = 0; i < 20; ++i) positions.push_back(i < cut ? i : i - cut);
    }
    // The uploads of a pass of so many layers.
    std::uint64_t pass(int layers) {
        Stream& s = tested_stream();
        const std::uint64_t before = ops::on_host::uploads();
        for (int i = 0; i < layers; ++i) {
            tested::rope(s, q, positions, rope);
            tested::rope(s, k, positions, rope);
            tested::attention_forward(s, q, k, v, segments, 0.3f, out, lse, {});
        }
        for (int i = 0; i < layers; ++i) {
            tested::attention_backward(s, out, q, k, v, lse, lse, segments, 0.3f, dq, dk, dv, {});
            tested::rope_backward(s, dq, positions, rope);
            tested::rope_backward(s, dk, positions, rope);
        }
        return ops::on_host::uploads() - before;
    }
};

TEST(KeptTables, UploadsOfAPassDoNotGrowWithItsLayers) {
    Layers(10).pass(1);  // what does not depend on the cut
    const std::uint64_t one = Layers(7).pass(1);
    EXPECT_GT(one, 0U);
    Layers other(11);
    EXPECT_EQ(other.pass(3), one);
    EXPECT_EQ(other.pass(1), 0U);  // the same micro-batch again
}

KeptTables::Memory made_of(const std::string& text) {
    auto* const memory = new std::byte[text.size()];
    std::memcpy(memory, text.data(), text.size());
    return {memory, [](const std::byte* done) { delete[] done; }};
}

TEST(KeptTables, KeepsTheLastUsedOfThem) {
    KeptTables tables;
    std::size_t made = 0;
    const auto find = [&](const std::string& text) {
        const auto memory = tables.find(std::as_bytes(std::span(text)), [&] {
            ++made;
            return made_of(text);
        });
        EXPECT_EQ(std::memcmp(memory.get(), text.data(), text.size()), 0);
        return memory;
    };
    const auto held = find("first");
    for (std::size_t i = 0; i + 1 < KeptTables::kMost; ++i) find(std::to_string(100 + i));
    EXPECT_EQ(find("first"), held);
    EXPECT_EQ(made, KeptTables::kMost);
    find("one more");  // takes the place of "100"
    EXPECT_EQ(find("first"), held);
    EXPECT_EQ(made, KeptTables::kMost + 1);
    find("100");
    EXPECT_EQ(made, KeptTables::kMost + 2);
}

TEST(KeptTables, NeverMoreBytesThanTheyMay) {
    KeptTables tables;
    std::weak_ptr<const std::byte> small, large, too_large;
    const auto find = [&](std::size_t bytes) {
        const std::string text(bytes, 'x');
        return tables.find(std::as_bytes(std::span(text)), [&] { return made_of(text); });
    };
    small = find(1000);
    large = find(KeptTables::kMostBytes - 1000);
    too_large = find(KeptTables::kMostBytes + 1);
    EXPECT_FALSE(small.expired());
    EXPECT_TRUE(too_large.expired());
    (void)find(1);
    EXPECT_TRUE(small.expired());
    EXPECT_FALSE(large.expired());
}

}  // namespace
}  // namespace tandem::tests
