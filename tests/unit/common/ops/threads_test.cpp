// Ops called by several threads at once (trainer and engine threads share the caches), for the sanitizers.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "common/ops/attention.h"
#include "common/ops/matmul.h"
#include "common/ops/rms_norm.h"
#include "common/ops/rope.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using testing::random_tensor;
using testing::zeros;

// A piece of a layer; the tables of rope grow with the number of tokens.
Tensor layer(std::int64_t tokens, const ops::RopeTable& table) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(1);
    const Tensor x = random_tensor(generator, {tokens, 64});
    const Tensor weight = random_tensor(generator, {64, 64}, DType::float32, 0.1f);
    const Tensor gain = random_tensor(generator, {64});
    const Tensor normed = zeros({tokens, 64}), q = zeros({tokens, 64}), out = zeros({tokens, 4, 16});
    ops::rms_norm(stream, x, gain, 1e-6f, normed);
    ops::linear(stream, normed, weight, q);
    const Tensor heads = q.reshape({tokens, 4, 16});
    std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens));
    std::iota(positions.begin(), positions.end(), 0);
    ops::rope(stream, heads, positions, table);
    ops::attention_forward(stream, heads, heads, heads, {{0, tokens, 0, tokens, true}}, 0.25f, out,
                           zeros({4, tokens}));
    return out;
}

TEST(OpsOnThreads, GiveTheSameBits) {
    constexpr std::int64_t kTokens[] = {10, 300, 70, 600};
    const ops::RopeTable table = testing::rope_table(777, 16);
    std::vector<Tensor> results(4);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 4; ++i) {
        threads.emplace_back([&, i, tokens = kTokens[i]] { results[i] = layer(tokens, table); });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < 4; ++i) {
        testing::expect_same_bits(results[i], layer(kTokens[i], testing::rope_table(777, 16)), "layer");
    }
}

}  // namespace
}  // namespace tandem
