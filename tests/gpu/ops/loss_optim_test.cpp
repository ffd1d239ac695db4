// Log-probabilities and AdamW.
#include <cmath>
#include <limits>

#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Found {
    std::vector<float> logprobs, lse, entropies;
    Tensor gradient;
};

std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
    return random({count}, seed).to_vector<float>();
}

void expect_near(const std::vector<float>& found, const std::vector<float>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(found[i] == wanted[i] ||
                    std::abs(found[i] - wanted[i]) <= 1e-5f * std::max(1.0f, std::abs(wanted[i])))
            << "row " << i << " is " << found[i] << ", not " << wanted[i];
}

Tensor logits_of(std::int64_t rows, std::int64_t vocab) {
    Tensor logits = random({rows, vocab}, 1, 5.0f);
    // Some tokens are ruled out, as a sampler's mask does.
    for (std::int64_t i = 1; i < logits.numel(); i += 11)
        logits.values<float>()[static_cast<std::size_t>(i)] = -kInfinity;
    return logits;
}

TEST(GpuLoss, LogProbsEntropyAndGradient) {
    for (const auto& [rows, vocab] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 3}, {3, 7}, {4, 4096}, {2, 4099}, {5, 9000}, {2, 20008}}) {
        for (const float temperature : {1.0f, 0.7f}) {
            SCOPED_TRACE(vocab);
            const Tensor logits = logits_of(rows, vocab);
            std::vector<std::int32_t> targets =
                random_ids(rows, static_cast<std::int32_t>((vocab + 10) / 11), 3);
            for (auto& target : targets) target = target * 11 % static_cast<std::int32_t>(vocab);
            if (rows > 2) targets[1] = -1;
            const auto size = static_cast<std::size_t>(rows);
            const std::vector<float> dlogprobs = numbers(rows, 4), dentropies = numbers(rows, 5);
            Found cpu{std::vector<float>(size), std::vector<float>(size), std::vector<float>(size),
                      logits.clone("t")};
            Found gpu{std::vector<float>(size), std::vector<float>(size), std::vector<float>(size),
                      to_tested(logits)};
            Stream s = Stream::make_inline();
            ops::token_logprobs(s, logits, targets, temperature, cpu.logprobs, cpu.lse, cpu.entropies);
            tested::token_logprobs(tested_stream(), gpu.gradient, targets, temperature, gpu.logprobs, gpu.lse,
                                   gpu.entropies);
            tested_stream().synchronize();
            expect_near(gpu.logprobs, cpu.logprobs);
            expect_near(gpu.lse, cpu.lse);
            expect_near(gpu.entropies, cpu.entropies);
            for (const bool entropy : {false, true}) {
                const std::vector<float> none;
                Tensor wanted = logits.clone("t");
                Tensor found = to_tested(logits);
                ops::token_logprobs_backward(s, wanted, targets, temperature, cpu.lse, dlogprobs,
                                             entropy ? cpu.entropies : none, entropy ? dentropies : none);
                tested::token_logprobs_backward(tested_stream(), found, targets, temperature, cpu.lse,
                                                dlogprobs, entropy ? cpu.entropies : none,
                                                entropy ? dentropies : none);
                expect_close(to_host(found), wanted);
            }
        }
    }
}

TEST(GpuLoss, NoRowsAndNoEntropies) {
    std::vector<float> none;
    tested::token_logprobs(tested_stream(), to_tested(zeros({0, 5})), {}, 1.0f, none, none, none);
    const Tensor logits = random({2, 30}, 1);
    std::vector<float> logprobs(2), lse(2), wanted(2), wanted_lse(2);
    const std::vector<std::int32_t> targets = {3, 29};
    Stream s = Stream::make_inline();
    ops::token_logprobs(s, logits, targets, 1.0f, wanted, wanted_lse);
    tested::token_logprobs(tested_stream(), to_tested(logits), targets, 1.0f, logprobs, lse, {});
    tested_stream().synchronize();
    expect_near(logprobs, wanted);
}

TEST(GpuOptim, AdamW) {
    for (const std::int64_t count : {0, 1, 9, 2048, 5003}) {
        ops::AdamWParams params{.weight_decay = 0.1f, .step = 3, .grad_scale = 0.5f};
        Tensor squares = random({count}, 4);
        for (float& value : squares.values<float>()) value *= value;
        compare(
            {{random({count}, 1)}, {random({count}, 2), true}, {random({count}, 3), true}, {squares, true}},
            BOTH(adamw(s, t[0], t[1], t[2], t[3], params)));
    }
}

// Rounded to a neighbour, the same one as on the CPU but where the two machines' last bits differ.
TEST(GpuOptim, StochasticRounding) {
    const std::int64_t count = 4001;
    const ops::AdamWParams params{
        .lr = 1e-2f, .step = 2, .stochastic_rounding = true, .seed = 99, .first_element = 13};
    const Tensor start = with_dtype(random({count}, 1), DType::bfloat16);
    const Tensor grad = random({count}, 2);
    Tensor cpu = start.clone("t"), gpu = to_tested(start);
    Tensor m = zeros({count}), v = zeros({count});
    Stream s = Stream::make_inline();
    ops::adamw(s, cpu, grad, m, v, params);
    tested::adamw(tested_stream(), gpu, to_tested(grad), to_tested(zeros({count})), to_tested(zeros({count})),
                  params);
    const std::vector<double> a = values_of(cpu), b = values_of(to_host(gpu));
    std::int64_t different = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        different += a[i] != b[i];
        ASSERT_NEAR(a[i], b[i], std::abs(a[i]) / 100 + 1e-6);
    }
    EXPECT_LE(different, count / 200);
}

TEST(GpuOptim, SumOfSquares) {
    for (const std::int64_t count : {0, 1, 9, 2048, 300001}) {
        const Tensor values = random({count}, 1);
        double wanted = 0.0;
        for (const double value : values_of(values)) wanted += value * value;
        const Tensor there = to_tested(values);
        const double found = tested::sum_of_squares(tested_stream(), there);
        EXPECT_NEAR(found, wanted, 1e-12 * wanted);
        EXPECT_EQ(tested::sum_of_squares(tested_stream(), there), found);
    }
}

}  // namespace
}  // namespace tandem::tests
