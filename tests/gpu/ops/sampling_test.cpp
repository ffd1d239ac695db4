// Sampling: the CPU's tokens, one for one, over every combination of settings, ties, impossible and not
// finite logits, and vocabularies from 1 to 152 k. Weights of all rows but the largest's are spread so that
// rounding decides nothing.
#include <cmath>
#include <limits>

#include "common/ops/sampling.h"
#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

using ops::Sampling;

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<Sampling> every_setting(std::int32_t row, std::int32_t vocab, std::mt19937_64& random,
                                    bool few = false) {
    std::vector<Sampling> result;
    std::uniform_real_distribution<double> uniform(0, 1);
    for (const float temperature : {0.0f, 0.7f, 1.0f}) {
        for (const std::int32_t top_k : {-1, 1, 5, vocab / 2 + 1, 1 << 30}) {
            for (const float top_p : {1.0f, 0.9f, 0.4f}) {
                for (const float min_p : {0.0f, 0.05f, 1.0f}) {
                    if (few && uniform(random) > 0.05) continue;
                    const bool fixed = uniform(random) < 0.2;
                    result.push_back({row, temperature, top_k, top_p, min_p, fixed ? 0.0 : uniform(random),
                                      uniform(random) < 0.5});
                }
            }
        }
    }
    return result;
}

void expect_the_cpus(const Tensor& logits, const std::vector<Sampling>& samples) {
    std::vector<std::int32_t> wanted(samples.size()), found(samples.size(), -7);
    std::vector<float> wanted_logprobs(samples.size(), 7.0f), logprobs(samples.size(), 7.0f);
    Stream here = Stream::make_inline();
    ops::sample_tokens(here, logits, samples, wanted, wanted_logprobs);
    const Tensor there = to_tested(logits);
    tested::sample_tokens(tested_stream(), there, samples, found, logprobs);
    tested_stream().synchronize();
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const Sampling& s = samples[i];
        EXPECT_EQ(found[i], wanted[i]) << fmt::format(
            "of {}: row {}, temperature {}, top_k {}, top_p {}, min_p {}, random number {}",
            to_string(logits.shape()), s.row, s.temperature, s.top_k, s.top_p, s.min_p, s.uniform);
        if (!s.logprob || wanted[i] == ops::kNoToken) continue;
        EXPECT_EQ(std::isnan(logprobs[i]), std::isnan(wanted_logprobs[i]));
        if (std::isnan(wanted_logprobs[i])) continue;  // a greedy choice beside a NaN
        EXPECT_NEAR(logprobs[i], wanted_logprobs[i], 1e-5f * (1.0f + std::abs(wanted_logprobs[i])));
    }
}

TEST(GpuSampling, EverySettingGivesTheCpusToken) {
    std::mt19937_64 random(1);
    for (const std::int32_t vocab : {1, 2, 7, 40, 513, 5000}) {
        // Normal logits; a few values only, so that most tie; most tokens impossible; weights from 1 to
        // 1e-40.
        Tensor logits = tests::random({4, vocab}, static_cast<std::uint64_t>(vocab), 2.0f);
        const auto values = logits.values<float>();
        const auto width = static_cast<std::size_t>(vocab);
        for (std::size_t i = 0; i < width; ++i) {
            values[width + i] = static_cast<float>(random() % 3);
            if (random() % 4 != 0 && i != width / 2) values[2 * width + i] = -kInfinite;
            values[3 * width + i] *= 20.0f;
        }
        std::vector<Sampling> samples;
        for (std::int32_t row = 0; row < 4; ++row) {
            const auto more = every_setting(row, vocab, random, vocab != 40 || row > 0);
            samples.insert(samples.end(), more.begin(), more.end());
        }
        expect_the_cpus(logits, samples);
    }
}

TEST(GpuSampling, LargeVocabularies) {
    std::mt19937_64 random(2);
    for (const std::int32_t vocab : {49153, 151936}) {
        const Tensor logits = tests::random({2, vocab}, 3, 2.5f);
        logits.values<float>()[77] = logits.values<float>()[static_cast<std::size_t>(vocab) - 9] = 30.0f;
        expect_the_cpus(logits, {{.row = 0, .temperature = 0.0f, .logprob = true},
                                 {.row = 1, .uniform = 0.371, .logprob = true},
                                 {.row = 1, .top_p = 0.95f, .uniform = 0.83},
                                 {.row = 1, .temperature = 2.0f, .top_k = 40, .min_p = 0.01f, .uniform = 0.6},
                                 {.row = 0, .top_k = 2, .uniform = 0.75}});
    }
}

TEST(GpuSampling, EqualWeightsAreCountedExactly) {
    const Tensor logits = zeros({1, 1000});
    std::vector<Sampling> samples;
    for (const double uniform : {0.0, 0.25, 0.5, 0.999, std::nextafter(1.0, 0.0)}) {
        samples.push_back({.uniform = uniform});
        samples.push_back({.top_k = 10, .uniform = uniform});
        samples.push_back({.top_p = 0.5f, .uniform = uniform});
        samples.push_back({.top_k = 300, .top_p = 0.25f, .min_p = 1.0f, .uniform = uniform});
    }
    expect_the_cpus(logits, samples);
}

TEST(GpuSampling, LogitsThatAreNotFiniteGiveNoToken) {
    Tensor logits = zeros({6, 20});
    const auto values = logits.values<float>();
    values[0] = kNaN;
    values[20 + 13] = kNaN;
    values[40 + 13] = kInfinite;
    std::fill_n(values.begin() + 60, 20, -kInfinite);
    std::fill_n(values.begin() + 80, 19, -kInfinite);
    std::vector<Sampling> samples;
    for (std::int32_t row = 0; row < 6; ++row) {
        for (const float temperature : {0.0f, 1.0f})
            for (const float top_p : {1.0f, 0.5f})
                samples.push_back({.row = row,
                                   .temperature = temperature,
                                   .top_p = top_p,
                                   .uniform = 0.4,
                                   .logprob = true});
    }
    expect_the_cpus(logits, samples);
    std::vector<std::int32_t> tokens(1);
    const std::vector<Sampling> one = {{.row = 2}};
    tested::sample_tokens(tested_stream(), to_tested(logits), one, tokens, {});
    tested_stream().synchronize();
    EXPECT_EQ(tokens[0], ops::kNoToken);
}

}  // namespace
}  // namespace tandem::tests
