// Sampling on the CPU: its distribution, and its restrictions at their edges.
#include "common/ops/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "common/error.h"
#include "common/ops/cross_entropy.h"
#include "common/ops/matmul.h"

namespace tandem::ops {
namespace {

std::int32_t sample(const std::vector<float>& logits, Sampling how, double uniform) {
    how.uniform = uniform;
    return sample_token(logits, how);
}

constexpr int kDraws = 20000;

std::vector<float> random_logits(std::size_t count, std::uint64_t seed, float spread = 2.0f) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0.0f, spread);
    std::vector<float> logits(count);
    for (float& value : logits) value = normal(random);
    return logits;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
    std::vector<double> p;
    double total = 0;
    for (const float value : logits)
        total += p.emplace_back(std::exp(static_cast<double>(value) / temperature));
    for (double& value : p) value /= total;
    return p;
}

std::map<std::int32_t, int> draw(const std::vector<float>& logits, const Sampling& params,
                                 int count = kDraws) {
    std::map<std::int32_t, int> seen;
    std::mt19937_64 random(11);
    for (int i = 0; i < count; ++i)
        ++seen[sample(logits, params, std::uniform_real_distribution<double>(0, 1)(random))];
    return seen;
}

// Pearson's statistic over the tokens of `expected` (probabilities that sum to 1), against a 1-in-10^4
// threshold.
void expect_distribution(const std::map<std::int32_t, int>& seen,
                         const std::map<std::int32_t, double>& expected) {
    double statistic = 0;
    int counted = 0;
    for (const auto& [token, p] : expected) {
        const auto found = seen.find(token);
        const double n = found == seen.end() ? 0 : found->second;
        counted += static_cast<int>(n);
        statistic += (n - p * kDraws) * (n - p * kDraws) / (p * kDraws);
    }
    EXPECT_EQ(counted, kDraws) << "a token outside the restriction was drawn";
    const double freedom = static_cast<double>(expected.size()) - 1;
    EXPECT_LT(statistic,
              freedom + 3.72 * std::sqrt(2 * freedom) + 10);  // a normal bound, generous at few degrees
}

TEST(Sampler, FollowsTheTemperedSoftmax) {
    const auto logits = random_logits(30, 1);
    for (const float temperature : {0.5f, 1.0f, 2.0f}) {
        const auto p = softmax(logits, static_cast<double>(temperature));
        std::map<std::int32_t, double> expected;
        for (std::size_t i = 0; i < p.size(); ++i) expected[static_cast<std::int32_t>(i)] = p[i];
        Sampling params;
        params.temperature = temperature;
        expect_distribution(draw(logits, params), expected);
    }
}

// The oracle of the restrictions: sort everything, walk, renormalise.
std::map<std::int32_t, double> restricted(const std::vector<float>& logits, const Sampling& params) {
    const auto p = softmax(logits, static_cast<double>(params.temperature));
    std::vector<std::int32_t> order(p.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    const auto at = [&](std::int32_t token) { return p[static_cast<std::size_t>(token)]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return at(a) > at(b); });
    std::map<std::int32_t, double> kept;
    double before = 0;
    for (std::size_t rank = 0; rank < order.size(); ++rank) {
        const double mine = at(order[rank]);
        const bool inside = (params.top_k < 0 || rank < static_cast<std::size_t>(params.top_k)) &&
                            (rank == 0 || before < static_cast<double>(params.top_p)) &&
                            mine >= static_cast<double>(params.min_p) * at(order[0]);
        if (inside) kept[order[rank]] = mine;
        before += mine;
    }
    double total = 0;
    for (const auto& [token, value] : kept) total += value;
    for (auto& [token, value] : kept) value /= total;
    return kept;
}

TEST(Sampler, TopKTopPMinPRestrictAndRenormalise) {
    const auto logits = random_logits(30, 2);
    for (const std::int32_t top_k : {-1, 2, 5, 29, 30, 1000}) {
        for (const float top_p : {0.3f, 0.9f, 1.0f}) {
            for (const float min_p : {0.0f, 0.1f}) {
                Sampling params;
                params.top_k = top_k;
                params.top_p = top_p;
                params.min_p = min_p;
                SCOPED_TRACE(::testing::Message()
                             << "top_k " << top_k << " top_p " << top_p << " min_p " << min_p);
                expect_distribution(draw(logits, params), restricted(logits, params));
            }
        }
    }
}

TEST(Sampler, RestrictsALargeVocabulary) {
    const auto logits = random_logits(5000, 3, 0.5f);  // flat: top_p 0.9 keeps thousands
    Sampling params;
    params.top_p = 0.9f;
    const auto expected = restricted(logits, params);
    ASSERT_GT(expected.size(), 2000u);
    for (const auto& [token, count] : draw(logits, params, 500))
        EXPECT_TRUE(expected.contains(token)) << token;
    params.top_k = 700;
    const auto fewer = restricted(logits, params);
    ASSERT_EQ(fewer.size(), 700u);
    for (const auto& [token, count] : draw(logits, params, 500)) EXPECT_TRUE(fewer.contains(token)) << token;
}

// The walk over everything sorted, in fp64, enters each kept token's range of random numbers where the sampler does.
TEST(Sampler, TheTokenOfARandomNumberAmongTheLikeliestIsTheExactOne) {
    constexpr double kRounding = 1e-6;
    for (const float spread : {0.5f, 4.0f}) {  // thousands are kept; a few hundred
        const auto logits = random_logits(5000, 6, spread);
        for (const Sampling& params :
             std::vector<Sampling>{{.top_k = 1000},
                                   {.top_p = 0.9f},
                                   {.min_p = 0.02f},
                                   {.top_k = 600, .top_p = 0.8f},
                                   {.top_k = 4000, .top_p = 0.99f, .min_p = 0.01f}}) {
            const auto kept = restricted(logits, params);
            std::vector<std::pair<double, std::int32_t>> sorted;
            for (const auto& [token, p] : kept) sorted.emplace_back(-p, token);
            std::sort(sorted.begin(), sorted.end());
            double before = 0;
            for (std::size_t rank = 0; rank < sorted.size(); ++rank) {
                const double p = -sorted[rank].first;
                if (p > 3 * kRounding && (rank < 20 || rank % 16 == 0)) {
                    ASSERT_EQ(sample(logits, params, before + kRounding), sorted[rank].second);
                    ASSERT_EQ(sample(logits, params, before + p - kRounding), sorted[rank].second);
                }
                before += p;
            }
            EXPECT_EQ(sample(logits, params, std::nextafter(1.0, 0.0)), sorted.back().second);
        }
    }
}

// Equals are one class, however many they are.
TEST(Sampler, AmongEqualsTheLowestAreKept) {
    constexpr std::int32_t kTokens = 6000;
    std::vector<float> logits(kTokens, 0.5f);
    logits[4321] = 3.5f;  // e^3 times as likely
    const double likeliest = std::exp(3.0), all = likeliest + kTokens - 1;
    const auto expected = [&](double kept, double uniform) {  // of a mass `kept`, in units of the equals'
        const auto rank = static_cast<std::int32_t>(std::floor(kept * uniform - likeliest));
        return kept * uniform < likeliest ? 4321 : rank + (rank >= 4321 ? 1 : 0);
    };
    for (int i = 0; i < 40; ++i) {
        const double uniform = (i + 0.499) / 40;
        EXPECT_EQ(sample(logits, {.top_k = 1001}, uniform), expected(likeliest + 1000, uniform)) << uniform;
        EXPECT_EQ(sample(logits, {.min_p = 0.01f}, uniform), expected(all, uniform)) << uniform;
        EXPECT_EQ(sample(logits, {.min_p = 0.9f}, uniform), 4321);
        const double kept = likeliest + std::ceil(0.75 * all - likeliest);
        EXPECT_EQ(sample(logits, {.top_p = 0.75f}, uniform), expected(kept, uniform)) << uniform;
    }
}

TEST(Sampler, GreedyAndItsTies) {
    const std::vector<float> logits = {1, 3, 2, 3};
    Sampling greedy;
    greedy.temperature = 0;
    Sampling one;
    one.top_k = 1;
    Sampling tiny;
    tiny.top_p = 1e-6f;
    for (const double u : {0.0, 0.5, 0.999999}) {
        EXPECT_EQ(sample(logits, greedy, u), 1);
        EXPECT_EQ(sample(logits, one, u), 1);
        EXPECT_EQ(sample(logits, tiny, u), 1);
    }
    for (const float temperature : {0.3f, 1.0f, 1.7f}) {  // as likely as the likeliest: the equals
        const Sampling equals{.temperature = temperature, .min_p = 1.0f};
        EXPECT_EQ(sample(logits, equals, 0.499), 1);
        EXPECT_EQ(sample(logits, equals, 0.501), 3);
    }
    EXPECT_EQ(greedy.logprob_temperature(), 1.0f);
}

TEST(Sampler, ExtremeLogits) {
    const float low = -std::numeric_limits<float>::infinity();
    const double last = std::nextafter(1.0, 0.0);
    for (const double u : {0.0, 0.5, last}) {
        EXPECT_EQ(sample(std::vector<float>{low, 5.0f, low}, {}, u), 1);
        EXPECT_EQ(sample(std::vector<float>{-3e38f, 3e38f, 0.0f}, {}, u), 1);
        EXPECT_EQ(sample(std::vector<float>{7.0f}, {}, u), 0);
    }
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        EXPECT_EQ(sample(std::vector<float>{0.0f, bad}, {}, 0.5), kNoToken);
        EXPECT_EQ(sample(std::vector<float>{bad, 0.0f}, {}, 0.5), kNoToken);
    }
}

// The token at which the cumulative probability passes `uniform`, in fp64.
std::int32_t exact_token(const std::vector<double>& p, double uniform) {
    double at = uniform;
    for (std::size_t i = 0; i < p.size(); ++i) {
        at -= p[i];
        if (at < 0) return static_cast<std::int32_t>(i);
    }
    return static_cast<std::int32_t>(p.size()) - 1;
}

// Vocabularies below, at and above the blocks of the search, many of its tokens impossible, among them whole
// blocks. Each token's range of random numbers is entered a little behind its begin and left a little before its end.
TEST(Sampler, TheTokenOfARandomNumberIsTheExactOne) {
    constexpr double kRounding = 1e-6;
    for (const std::size_t vocab : {1u, 5u, 1023u, 1024u, 1025u, 5000u, 49152u}) {
        for (const float temperature : {0.7f, 1.0f}) {
            auto logits = random_logits(vocab, vocab, 3.0f);
            for (std::size_t i = 0; i < vocab; ++i) {
                if (i % 3 == 1 || (i > 2000 && i < 4200)) logits[i] = -std::numeric_limits<float>::infinity();
            }
            const auto p = softmax(logits, static_cast<double>(temperature));
            Sampling params;
            params.temperature = temperature;
            double before = 0;
            int checked = 0;
            for (std::size_t i = 0; i < vocab; before += p[i], ++i) {
                if (p[i] < 3 * kRounding) continue;
                for (const double uniform : {before + kRounding, before + p[i] - kRounding}) {
                    ASSERT_EQ(exact_token(p, uniform), static_cast<std::int32_t>(i));
                    ASSERT_EQ(sample(logits, params, uniform), static_cast<std::int32_t>(i));
                    ++checked;
                }
            }
            EXPECT_GT(checked, vocab > 1000 ? 300 : 1) << vocab;
            std::size_t last = vocab - 1;
            while (p[last] == 0) --last;
            EXPECT_EQ(sample(logits, params, 0.0), 0);
            EXPECT_GE(sample(logits, params, std::nextafter(1.0, 0.0)), 0);
            EXPECT_LE(sample(logits, params, std::nextafter(1.0, 0.0)), static_cast<std::int32_t>(last));
        }
    }
}

TEST(Sampler, GreedyTakesTheFirstOfEqualsInALargeVocabulary) {
    Sampling greedy;
    greedy.temperature = 0;
    auto logits = random_logits(5000, 4);
    logits[3333] = logits[3334] = logits[4999] = 50.0f;
    EXPECT_EQ(sample(logits, greedy, 0.0), 3333);
    logits[1024] = 50.0f;
    EXPECT_EQ(sample(logits, greedy, 0.0), 1024);
    logits[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(sample(logits, greedy, 0.0), kNoToken);
}

// What rollouts report is what a trainer computes, whatever else is in the batch and on any number of threads.
TEST(Sampler, TokensAndTheTrainersLogprobsInEveryBatchOnAnyThreads) {
    constexpr std::int64_t kRows = 7, kVocab = 3000;
    const Tensor logits = Tensor::from<float>(random_logits(kRows * kVocab, 9), {kRows, kVocab});
    Stream stream = Stream::make_inline();
    std::mt19937_64 random(5);
    std::vector<Sampling> samples;
    for (std::int32_t row = 0; row < kRows; ++row) {
        for (const float temperature : {0.0f, 0.7f, 1.0f}) {
            for (const std::int32_t top_k : {-1, 1, 50}) {
                samples.push_back({.row = row,
                                   .temperature = temperature,
                                   .top_k = top_k,
                                   .uniform = std::uniform_real_distribution<double>(0, 1)(random),
                                   .logprob = true});
            }
        }
    }
    std::vector<std::int32_t> tokens(samples.size());
    std::vector<float> logprobs(samples.size());
    set_compute_threads(3);
    sample_tokens(stream, logits, samples, tokens, logprobs);
    set_compute_threads(1);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        std::int32_t token = 0;
        float logprob = 0, trainers = 0, lse = 0;
        sample_tokens(stream, logits, std::span(&samples[i], 1), {&token, 1}, {&logprob, 1});
        token_logprobs(stream, logits.rows(samples[i].row, 1), std::span(&token, 1),
                       samples[i].logprob_temperature(), {&trainers, 1}, {&lse, 1});
        EXPECT_EQ(tokens[i], token) << i;
        EXPECT_EQ(logprobs[i], logprob) << i;
        EXPECT_EQ(trainers, logprob) << i;
    }
}

}  // namespace
}  // namespace tandem::ops
