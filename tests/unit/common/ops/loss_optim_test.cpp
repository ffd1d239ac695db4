// Token log-probabilities and AdamW against fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/ops/adamw.h"
#include "common/ops/cross_entropy.h"
#include "common/ops/elementwise.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using testing::Doubles;
using testing::expect_close;
using testing::expect_same_bits;
using testing::random_tensor;
using testing::to_doubles;
using testing::zeros;

struct Loss {
    Doubles logprobs, lse, entropies;
};

Loss naive(const Doubles& logits, const std::vector<std::int32_t>& targets, double temperature) {
    Loss result;
    const std::size_t vocab = logits.size() / targets.size();
    for (std::size_t row = 0; row < targets.size(); ++row) {
        const double* x = &logits[row * vocab];
        double max = x[0];
        for (std::size_t i = 0; i < vocab; ++i) max = std::max(max, x[i]);
        double sum = 0.0, weighted = 0.0;
        for (std::size_t i = 0; i < vocab; ++i) {
            const double z = (x[i] - max) / temperature;
            sum += std::exp(z);
            if (std::isfinite(z)) weighted += std::exp(z) * z;
        }
        result.lse.push_back(max / temperature + std::log(sum));
        result.entropies.push_back(std::log(sum) - weighted / sum);
        result.logprobs.push_back(targets[row] < 0 ? 0.0 : x[targets[row]] / temperature - result.lse.back());
    }
    return result;
}

Tensor as_tensor(const std::vector<float>& values) {
    return Tensor::from<float>(values, {static_cast<std::int64_t>(values.size())});
}

TEST(TokenLogprobs, ForwardAndBackward) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(1);
    for (const std::int64_t vocab : {1, 2, 16, 50, 1000, 49152}) {
        for (const float temperature : {1.0f, 0.7f}) {
            const std::size_t rows = 5;
            const Tensor logits = random_tensor(generator, {5, vocab}, DType::float32, 3.0f);
            std::vector<std::int32_t> targets(rows);
            for (auto& target : targets)
                target = static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocab));
            targets[2] = -1;
            std::vector<float> logprobs(rows), lse(rows), entropies(rows),
                dlogprobs = {1.0f, -0.5f, 3.0f, 0.0f, 2.0f};
            ops::token_logprobs(stream, logits, targets, temperature, logprobs, lse, entropies);
            const Doubles in = to_doubles(logits);
            const Loss wanted = naive(in, targets, static_cast<double>(temperature));
            expect_close(as_tensor(logprobs), wanted.logprobs, 1e-5, "logprobs", 1e-6);
            expect_close(as_tensor(lse), wanted.lse, 1e-5, "lse");
            expect_close(as_tensor(entropies), wanted.entropies, 1e-5, "entropies", 2e-6);
            std::vector<float> one(1), one_lse(1);
            ops::token_logprobs(stream, logits.rows(3, 1), std::span(targets).subspan(3, 1), temperature, one,
                                one_lse);
            EXPECT_EQ(one[0], logprobs[3]);
            EXPECT_EQ(one_lse[0], lse[3]);

            ops::token_logprobs_backward(stream, logits, targets, temperature, lse, dlogprobs);
            Doubles gradient(in.size(), 0.0);
            for (std::size_t row = 0; row < rows; ++row) {
                if (targets[row] < 0) continue;
                const std::size_t width = static_cast<std::size_t>(vocab);
                for (std::size_t i = 0; i < width; ++i) {
                    const double t = static_cast<double>(temperature);
                    const double p = std::exp(in[row * width + i] / t - wanted.lse[row]);
                    const double hit = static_cast<std::size_t>(targets[row]) == i ? 1.0 : 0.0;
                    gradient[row * width + i] = static_cast<double>(dlogprobs[row]) * (hit - p) / t;
                }
            }
            expect_close(logits, gradient, 1e-5, "dlogits", 1e-6);
        }
    }
}

TEST(TokenLogprobs, BackwardMatchesFiniteDifferences) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(2);
    const Tensor logits = random_tensor(generator, {3, 11});
    const std::vector<std::int32_t> targets = {4, -1, 10};
    const Doubles weights = {0.3, 1.0, -2.0};
    const Doubles wanted = testing::finite_differences(
        [&](const Doubles& at) { return naive(at, targets, 0.8).logprobs; }, to_doubles(logits), weights);
    std::vector<float> logprobs(3), lse(3);
    ops::token_logprobs(stream, logits, targets, 0.8f, logprobs, lse);
    ops::token_logprobs_backward(stream, logits, targets, 0.8f, lse, std::vector<float>{0.3f, 1.0f, -2.0f});
    expect_close(logits, wanted, 1e-5, "dlogits", 1e-7);
}

TEST(TokenLogprobs, EntropysGradientMatchesFiniteDifferences) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(3);
    const Tensor logits = random_tensor(generator, {3, 40}, DType::float32, 3.0f);
    const std::vector<std::int32_t> targets = {4, -1, 10};
    const Doubles of_logprobs = {0.3, 1.0, 0.0}, of_entropies = {-0.4, 1.0, 0.9};
    Doubles wanted = testing::finite_differences(
        [&](const Doubles& at) { return naive(at, targets, 0.8).logprobs; }, to_doubles(logits), of_logprobs);
    const Doubles more =
        testing::finite_differences([&](const Doubles& at) { return naive(at, targets, 0.8).entropies; },
                                    to_doubles(logits), of_entropies);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = i / 40 == 1 ? 0 : wanted[i] + more[i];
    std::vector<float> logprobs(3), lse(3), entropies(3);
    ops::token_logprobs(stream, logits, targets, 0.8f, logprobs, lse, entropies);
    ops::token_logprobs_backward(stream, logits, targets, 0.8f, lse, std::vector<float>{0.3f, 1.0f, 0.0f},
                                 entropies, std::vector<float>{-0.4f, 1.0f, 0.9f});
    expect_close(logits, wanted, 2e-5, "dlogits", 1e-6);
}

TEST(TokenLogprobs, MaskedLogitsHaveNoEntropyGradient) {
    Stream stream = Stream::make_inline();
    const float infinity = std::numeric_limits<float>::infinity();
    const Tensor logits = Tensor::from<float>(std::vector<float>{1.0f, -infinity, 0.5f}, {1, 3});
    std::vector<float> logprobs(1), lse(1), entropies(1);
    ops::token_logprobs(stream, logits, std::vector<std::int32_t>{0}, 1.0f, logprobs, lse, entropies);
    ops::token_logprobs_backward(stream, logits, std::vector<std::int32_t>{0}, 1.0f, lse,
                                 std::vector<float>{0.0f}, entropies, std::vector<float>{1.0f});
    const auto gradient = logits.values<float>();
    EXPECT_EQ(gradient[1], 0.0f);
    EXPECT_NEAR(gradient[0], -gradient[2], 1e-6);
    EXPECT_LT(gradient[0], -0.1f);  // the likelier one pulls the entropy down
}

TEST(TokenLogprobs, ANanReachesEveryResultOfItsRowAndNoOther) {
    Stream stream = Stream::make_inline();
    const Tensor logits = zeros({2, 50});
    logits.data<float>()[37] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<std::int32_t> targets = {4, 4};
    std::vector<float> logprobs(2), lse(2), entropies(2);
    ops::token_logprobs(stream, logits, targets, 1.0f, logprobs, lse, entropies);
    for (const auto& result : {logprobs, lse, entropies}) {
        EXPECT_TRUE(std::isnan(result[0]));
        EXPECT_TRUE(std::isfinite(result[1]));
    }
    for (const float dentropy : {0.0f, 1.0f}) {
        const Tensor gradient = logits.clone("gradient");
        ops::token_logprobs_backward(stream, gradient, targets, 1.0f, lse, std::vector<float>{1.0f, 1.0f},
                                     entropies, std::vector<float>{dentropy, dentropy});
        for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(std::isnan(gradient.data<float>()[i]), i < 50) << i;
    }
}

TEST(TokenLogprobs, MaskedLogitsAndBadInput) {
    Stream stream = Stream::make_inline();
    const float infinity = std::numeric_limits<float>::infinity();
    const Tensor logits = Tensor::from<float>(std::vector<float>{1.0f, -infinity, 1.0f, -1e30f}, {1, 4});
    std::vector<float> logprobs(1), lse(1), entropies(1);
    ops::token_logprobs(stream, logits, std::vector<std::int32_t>{0}, 1.0f, logprobs, lse, entropies);
    EXPECT_NEAR(logprobs[0], -std::log(2.0f), 1e-6f);
    EXPECT_NEAR(entropies[0], std::log(2.0f), 1e-6f);
    const auto run = [&](std::vector<std::int32_t> targets, float temperature) {
        ops::token_logprobs(stream, logits, targets, temperature, logprobs, lse);
    };
    EXPECT_THROW(run({4}, 1.0f), InvalidArgument);
    EXPECT_THROW(run({-3}, 1.0f), InvalidArgument);
    EXPECT_THROW(run({0, 1}, 1.0f), InvalidArgument);
    EXPECT_THROW(run({0}, 0.0f), InvalidArgument);
}

TEST(AdamW, TenStepsAgainstFp64) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(3);
    for (const std::int64_t count : {1, 16, 777}) {
        const Tensor p = random_tensor(generator, {count}), m = zeros({count}), v = zeros({count});
        Doubles wp = to_doubles(p), wm(wp.size(), 0.0), wv(wp.size(), 0.0);
        ops::AdamWParams params{.lr = 0.01f, .weight_decay = 0.1f, .grad_scale = 0.25f};
        for (params.step = 1; params.step <= 10; ++params.step) {
            const Tensor g = random_tensor(generator, {count});
            ops::adamw(stream, p, g, m, v, params);
            const Doubles gs = to_doubles(g);
            const double b1 = static_cast<double>(params.beta1), b2 = static_cast<double>(params.beta2);
            const double lr = static_cast<double>(params.lr), t = static_cast<double>(params.step);
            for (std::size_t i = 0; i < wp.size(); ++i) {
                const double grad = gs[i] * static_cast<double>(params.grad_scale);
                wp[i] -= lr * static_cast<double>(params.weight_decay) * wp[i];
                wm[i] = b1 * wm[i] + (1.0 - b1) * grad;
                wv[i] = b2 * wv[i] + (1.0 - b2) * grad * grad;
                wp[i] -= lr * (wm[i] / (1.0 - std::pow(b1, t))) /
                         (std::sqrt(wv[i] / (1.0 - std::pow(b2, t))) + static_cast<double>(params.eps));
            }
        }
        expect_close(p, wp, 1e-5, "param");
        expect_close(m, wm, 1e-5, "exp_avg");
        expect_close(v, wv, 1e-5, "exp_avg_sq");
        double sum = 0.0;
        for (const double value : to_doubles(p)) sum += value * value;
        EXPECT_NEAR(ops::sum_of_squares(p), sum, 1e-12 * sum);
    }
    for (const std::int64_t count : {1, 777, 9000}) {
        const Tensor p = random_tensor(generator, {count}), g = random_tensor(generator, {count});
        const Tensor rounded = zeros({count}, DType::bfloat16), wanted = zeros({count}, DType::bfloat16);
        ops::adamw(stream, p, g, zeros({count}), zeros({count}), {}, {}, rounded);
        ops::cast(stream, p, wanted);
        expect_same_bits(rounded, wanted, "rounded");
    }
    const Tensor a = zeros({4});
    EXPECT_THROW(ops::adamw(stream, a, a, a, a, {}, {}, a), InvalidArgument);
    EXPECT_THROW(ops::adamw(stream, a, zeros({3}), a, a, {}), InvalidArgument);
    EXPECT_THROW(ops::adamw(stream, a, a, a, a, {.step = 0}), InvalidArgument);
    EXPECT_THROW(ops::sum_of_squares(zeros({4}, DType::bfloat16)), InvalidArgument);
}

}  // namespace
}  // namespace tandem
