// A step that writes its parameters in bfloat16, too, into parts that lie anywhere: the same bits as a step that writes one
// copy, with gaps between the parts, with a tail of another rate, and chunk by chunk.
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "trainer/offload/in_chunks.h"
#include "trainer/optim/adamw.h"

namespace tandem::trainer {
namespace {

constexpr std::int64_t kNumel = (std::int64_t{1} << 20) + 4097;  // more than a chunk

std::vector<float> random_values(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<float> values(kNumel);
    for (float& value : values) value = static_cast<float>(random()) / 4e9f - 0.5f;
    return values;
}

struct Stepped {
    std::vector<float> params, exp_avg;
    std::vector<bfloat16> rounded;
};

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
    std::vector<std::uint32_t> result;
    for (const float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
    return result;
}

// Two steps; the parts [begin, end) get the copy.
Stepped stepped(const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges, std::int64_t tail,
                bool offloaded) {
    Stream stream = Stream::make_inline();
    FlatState params(stream, kNumel, DType::float32, "test", cpu_pool());
    std::ranges::copy(random_values(1), params.tensor().values<float>().begin());
    AdamW optimizer(stream, kNumel, 0.9f, 0.99f, 1e-8f, 0.1f, offloaded ? ::testing::TempDir() : "");
    optimizer.set_tail(tail, 3.0);
    const Tensor rounded = Tensor::zeros({kNumel}, DType::bfloat16, "test");
    std::vector<PartCopy> parts;
    for (const auto& [begin, end] : ranges) parts.push_back({begin, rounded.rows(begin, end - begin)});
    for (unsigned step = 2; step < 4; ++step) {
        const Tensor grads = Tensor::from<float>(random_values(step), {kNumel});
        EXPECT_EQ(optimizer.step(stream, params, grads, 1e-2, 0.5f, parts), 0);
    }
    optimizer.exp_avg().onload();
    return {params.tensor().to_vector<float>(), optimizer.exp_avg().tensor().to_vector<float>(),
            rounded.to_vector<bfloat16>()};
}

TEST(RoundedParts, HaveTheBitsOfOneCopy) {
    const std::vector<std::pair<std::int64_t, std::int64_t>> parts{
        {0, 27}, {32, 33}, {64, 64}, {64, 5000}, {5000, 5001}, {5024, 1 << 20}, {(1 << 20) + 32, kNumel - 7}};
    for (const std::int64_t tail : {kNumel, std::int64_t{4099}}) {
        const Stepped whole = stepped({{0, kNumel}}, tail, false);
        for (const bool offloaded : {false, true}) {
            const Stepped cut = stepped(parts, tail, offloaded);
            EXPECT_TRUE(bits(cut.params) == bits(whole.params));
            EXPECT_TRUE(bits(cut.exp_avg) == bits(whole.exp_avg));
            std::vector<bool> covered(kNumel);
            for (const auto& [begin, end] : parts)
                std::fill(covered.begin() + begin, covered.begin() + end, true);
            for (std::size_t i = 0; i < covered.size(); ++i) {
                const bfloat16 expected = covered[i] ? bfloat16(whole.params[i]) : bfloat16(0.0f);
                ASSERT_EQ(cut.rounded[i].bits, expected.bits) << i;
            }
        }
    }
}

}  // namespace
}  // namespace tandem::trainer
