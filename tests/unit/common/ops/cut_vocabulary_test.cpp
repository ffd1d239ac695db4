// A vocabulary in parts, as the ranks of a tensor-parallel group have it: what the parts give, put together,
// is what the whole gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/ops/cross_entropy.h"
#include "common/ops/embedding.h"
#include "common/ops/matmul.h"
#include "common/ops/swiglu.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using testing::Doubles;
using testing::expect_close;
using testing::expect_same_bits;
using testing::random_tensor;
using testing::to_doubles;
using testing::zeros;

constexpr float kMasked = -std::numeric_limits<float>::infinity();

struct Part {
    std::int64_t begin, end;
};

// Cuts [0, size) at random places; parts of one and of nothing are common.
std::vector<Part> random_parts(std::mt19937& generator, std::int64_t size) {
    std::vector<std::int64_t> cuts = {0, size, size / 2, size / 2 + 1};
    for (int i = 0; i < 3; ++i) cuts.push_back(static_cast<std::int64_t>(generator()) % (size + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<Part> parts;
    for (std::size_t i = 1; i < cuts.size(); ++i) parts.push_back({cuts[i - 1], std::min(cuts[i], size)});
    return parts;
}

Tensor columns_of(const Tensor& all, const Part& part) {
    const Tensor result = zeros({all.dim(0), part.end - part.begin});
    for (std::int64_t row = 0; row < all.dim(0); ++row)
        std::copy(all.data<float>() + row * all.dim(1) + part.begin,
                  all.data<float>() + row * all.dim(1) + part.end,
                  result.data<float>() + row * result.dim(1));
    return result;
}

std::int32_t target_in(const Part& part, std::int32_t target) {
    if (target < 0) return target;
    const bool here = target >= part.begin && target < part.end;
    return here ? static_cast<std::int32_t>(target - part.begin) : ops::kElsewhere;
}

struct Scores {
    explicit Scores(std::size_t rows) : logprobs(rows), lse(rows), entropies(rows) {}
    std::vector<float> logprobs, lse, entropies;
};

Scores score(const Tensor& logits, const std::vector<std::int32_t>& targets, float temperature) {
    Stream stream = Stream::make_inline();
    Scores result(targets.size());
    ops::token_logprobs(stream, logits, targets, temperature, result.logprobs, result.lse, result.entropies);
    return result;
}

// The chain rule of log-sum-exp and entropy, of one row.
struct Joined {
    double logprob = 0.0, lse, entropy;
};

Joined join(const std::vector<Scores>& parts, const std::vector<std::vector<std::int32_t>>& targets,
            std::size_t row) {
    double largest = parts[0].lse[row], sum = 0.0;
    for (const Scores& part : parts) largest = std::max(largest, static_cast<double>(part.lse[row]));
    for (const Scores& part : parts) sum += std::exp(static_cast<double>(part.lse[row]) - largest);
    Joined result{.lse = largest + std::log(sum), .entropy = 0.0};
    result.entropy = result.lse;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const double lse = static_cast<double>(parts[i].lse[row]);
        const double weight = std::exp(lse - result.lse);
        if (weight > 0.0) result.entropy -= weight * (lse - static_cast<double>(parts[i].entropies[row]));
        if (targets[i][row] >= 0)
            result.logprob = static_cast<double>(parts[i].logprobs[row]) + lse - result.lse;
        else
            EXPECT_EQ(parts[i].logprobs[row], 0.0f);
    }
    return result;
}

struct Reference {
    Doubles logprobs, lse, entropies, gradient;
};

// In fp64, with the gradient of sum(dlogprobs · logprobs + dentropies · entropies).
Reference reference(const Tensor& logits, const std::vector<std::int32_t>& targets, double temperature,
                    const std::vector<float>& dlogprobs, const std::vector<float>& dentropies) {
    const Doubles x = to_doubles(logits);
    const auto vocab = static_cast<std::size_t>(logits.dim(1));
    Reference result;
    result.gradient.assign(x.size(), 0.0);
    for (std::size_t row = 0; row < targets.size(); ++row) {
        const double* at = &x[row * vocab];
        const double max = *std::max_element(at, at + vocab) / temperature;
        double sum = 0.0;
        for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(at[i] / temperature - max);
        const double lse = max + std::log(sum);
        double entropy = 0.0;
        for (std::size_t i = 0; i < vocab; ++i) {
            const double logp = at[i] / temperature - lse;
            if (std::isfinite(logp)) entropy -= std::exp(logp) * logp;
        }
        result.lse.push_back(lse);
        result.entropies.push_back(entropy);
        result.logprobs.push_back(targets[row] < 0 ? 0.0 : at[targets[row]] / temperature - lse);
        for (std::size_t i = 0; targets[row] >= 0 && i < vocab; ++i) {
            const double logp = at[i] / temperature - lse;
            if (!std::isfinite(logp)) continue;
            const double hit = static_cast<std::size_t>(targets[row]) == i ? 1.0 : 0.0;
            result.gradient[row * vocab + i] =
                (static_cast<double>(dlogprobs[row]) * (hit - std::exp(logp)) -
                 static_cast<double>(dentropies[row]) * std::exp(logp) * (logp + entropy)) /
                temperature;
        }
    }
    return result;
}

std::vector<float> floats(const std::vector<double>& values) {
    return {values.begin(), values.end()};
}

Tensor as_row(const Doubles& values) {
    return Tensor::from<float>(floats(values), {static_cast<std::int64_t>(values.size())});
}

TEST(CutVocabulary, PartsMakeTheWholesLogprobsAndGradients) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(11);
    const std::vector<float> dlogprobs = {1.0f, -0.5f, 3.0f, 0.0f, 2.0f};
    const std::vector<float> dentropies = {-0.4f, 0.0f, 0.7f, 1.3f, 0.2f};
    for (const std::int64_t vocab : {1, 2, 3, 17, 50, 1000, 5003}) {
        for (int trial = 0; trial < 8; ++trial) {
            const float temperature = trial % 2 == 0 ? 1.0f : 0.7f;
            const Tensor logits = random_tensor(generator, {5, vocab}, DType::float32, 3.0f);
            std::vector<std::int32_t> targets;
            for (int row = 0; row < 5; ++row)
                targets.push_back(static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocab)));
            targets[2] = -1;
            const Reference wanted =
                reference(logits, targets, static_cast<double>(temperature), dlogprobs, dentropies);

            const std::vector<Part> parts = random_parts(generator, vocab);
            std::vector<Scores> scores;
            std::vector<std::vector<std::int32_t>> local;
            for (const Part& part : parts) {
                local.emplace_back();
                for (const std::int32_t target : targets) local.back().push_back(target_in(part, target));
                scores.push_back(score(columns_of(logits, part), local.back(), temperature));
            }
            Reference found;
            for (std::size_t row = 0; row < 5; ++row) {
                const Joined joined = join(scores, local, row);
                found.logprobs.push_back(joined.logprob);
                found.lse.push_back(joined.lse);
                found.entropies.push_back(joined.entropy);
            }
            expect_close(as_row(found.logprobs), wanted.logprobs, 1e-5, "logprobs", 2e-6);
            expect_close(as_row(found.lse), wanted.lse, 1e-5, "lse", 2e-6);
            expect_close(as_row(found.entropies), wanted.entropies, 1e-5, "entropies", 4e-6);

            const std::vector<float> lse = floats(found.lse), entropies = floats(found.entropies);
            const Tensor gradient = zeros({5, vocab});
            for (std::size_t i = 0; i < parts.size(); ++i) {
                const Tensor part = columns_of(logits, parts[i]);
                ops::token_logprobs_backward(stream, part, local[i], temperature, lse, dlogprobs, entropies,
                                             dentropies);
                for (std::int64_t row = 0; row < 5; ++row)
                    std::copy_n(part.data<float>() + row * part.dim(1), part.dim(1),
                                gradient.data<float>() + row * vocab + parts[i].begin);
            }
            expect_close(gradient, wanted.gradient, 2e-5, "dlogits", 3e-6);
        }
    }
}

TEST(CutVocabulary, WithoutEntropiesARowElsewhereStillHasItsSoftmax) {
    Stream stream = Stream::make_inline();
    const Tensor logits = Tensor::from<float>(std::vector<float>{0.0f, 1.0f, 0.0f, 1.0f}, {2, 2});
    const std::vector<std::int32_t> targets = {ops::kElsewhere, -1};
    const Scores part = score(logits, targets, 1.0f);
    EXPECT_EQ(part.logprobs, (std::vector<float>{0.0f, 0.0f}));
    EXPECT_NEAR(part.lse[0], 1.3132617f, 1e-6f);
    EXPECT_EQ(part.lse[0], part.lse[1]);
    EXPECT_EQ(part.entropies[0], part.entropies[1]);
    const float lse = 3.0f;  // of the whole: these two have 0.186 of the probability
    ops::token_logprobs_backward(stream, logits, targets, 1.0f, std::vector<float>{lse, lse},
                                 std::vector<float>{2.0f, 2.0f});
    const auto gradient = logits.values<float>();
    EXPECT_NEAR(gradient[0], -2.0f * std::exp(0.0f - lse), 1e-6f);
    EXPECT_NEAR(gradient[1], -2.0f * std::exp(1.0f - lse), 1e-6f);
    EXPECT_EQ(gradient[2], 0.0f);
    EXPECT_EQ(gradient[3], 0.0f);
}

// A sampler's mask may rule out all that one rank has, and a small vocabulary leaves ranks without a column.
TEST(CutVocabulary, APartOfNothingHasNoWeight) {
    for (const Shape& shape : {Shape{2, 0}, Shape{2, 5}, Shape{2, 40}}) {
        const Tensor logits = zeros(shape);
        std::fill_n(logits.data<float>(), logits.numel(), kMasked);
        for (const float temperature : {0.5f, 1.0f, 4.0f}) {
            const Scores part = score(logits, {ops::kElsewhere, -1}, temperature);
            EXPECT_EQ(part.logprobs, (std::vector<float>{0.0f, 0.0f}));
            EXPECT_EQ(part.lse, (std::vector<float>{kMasked, kMasked}));
            EXPECT_EQ(part.entropies, (std::vector<float>{0.0f, 0.0f}));
        }
        Stream stream = Stream::make_inline();
        ops::token_logprobs_backward(stream, logits, std::vector<std::int32_t>{ops::kElsewhere, -1}, 1.0f,
                                     std::vector<float>{1.0f, 1.0f}, std::vector<float>{1.0f, 1.0f},
                                     std::vector<float>{1.0f, 1.0f}, std::vector<float>{1.0f, 1.0f});
        for (const float value : logits.values<float>()) EXPECT_EQ(value, 0.0f);
    }
    const Tensor masked = Tensor::from<float>(std::vector<float>{kMasked, kMasked}, {1, 2});
    EXPECT_EQ(score(masked, {1}, 1.0f).logprobs[0], kMasked);  // the target is ruled out
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const auto& values : {std::vector<float>{nan, kMasked}, std::vector<float>{kMasked, nan}})
        EXPECT_TRUE(std::isnan(score(Tensor::from<float>(values, {1, 2}), {0}, 1.0f).lse[0]));
}

TEST(CutVocabulary, EmbeddingsOfThePartsAddUpToTheWhole) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(12);
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (int trial = 0; trial < 10; ++trial) {
            const std::int64_t vocab = 9, dim = 5, tokens = 40;
            const Tensor table = random_tensor(generator, {vocab, dim}, dtype);
            const Tensor dy = random_tensor(generator, {tokens, dim}, dtype);
            std::vector<std::int32_t> ids;
            for (int i = 0; i < tokens; ++i) ids.push_back(static_cast<std::int32_t>(generator() % 9));
            const Tensor wanted = zeros({tokens, dim}, dtype), gradient = zeros({vocab, dim});
            ops::embedding(stream, table, ids, wanted);
            ops::embedding_backward(stream, dy, ids, gradient);

            Doubles sum(static_cast<std::size_t>(tokens * dim), 0.0);
            for (const Part& part : random_parts(generator, vocab)) {
                const std::int64_t rows = part.end - part.begin;
                std::vector<std::int32_t> local;
                for (const std::int32_t id : ids) local.push_back(std::max(target_in(part, id), -1));
                const Tensor y = random_tensor(generator, {tokens, dim}, dtype);  // to be overwritten
                ops::embedding(stream, table.rows(part.begin, rows), local, y);
                const Tensor same = random_tensor(generator, {tokens, dim}, dtype);
                ops::embedding(stream, table.rows(part.begin, rows),
                               Tensor::from<std::int32_t>(local, {tokens}), same);
                expect_same_bits(y, same, "ids in a tensor");
                const Doubles values = to_doubles(y);
                for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
                const Tensor dtable = zeros({rows, dim});
                ops::embedding_backward(stream, dy, local, dtable);
                expect_same_bits(dtable, gradient.rows(part.begin, rows), "gradient");
            }
            expect_close(wanted, sum, 0.0, "y");
        }
    }
}

TEST(CutVocabulary, ATableWithoutRows) {
    Stream stream = Stream::make_inline();
    const std::vector<std::int32_t> none = {-1, -1};
    const Tensor y = Tensor::from<float>(std::vector<float>{1, 2, 3, 4}, {2, 2});
    ops::embedding_backward(stream, y, none, zeros({0, 2}));
    ops::embedding(stream, zeros({0, 2}), none, y);
    for (const float value : y.values<float>()) EXPECT_EQ(value, 0.0f);
    EXPECT_THROW(ops::embedding(stream, zeros({0, 2}), std::vector<std::int32_t>{-1, 0}, y), InvalidArgument);
    EXPECT_THROW(ops::embedding(stream, zeros({3, 2}), std::vector<std::int32_t>{-2, 0}, y), InvalidArgument);
    EXPECT_THROW(ops::embedding_backward(stream, y, std::vector<std::int32_t>{0, -2}, zeros({3, 2})),
                 InvalidArgument);
}

// A rank that has no feature of a layer: every sum over nothing is zero, and nothing of nothing is nothing.
TEST(CutFeatures, LayersOfNothing) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(13);
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const auto some = [&](const Shape& shape) { return random_tensor(generator, shape, dtype); };
        const Tensor x = some({4, 6}), none = zeros({4, 0}, dtype);

        // no out features
        ops::linear(stream, x, zeros({0, 6}, dtype), none);
        ops::linear(stream, x, zeros({0, 6}, dtype), zeros({0}, dtype), none);
        Tensor dx = some({4, 6});
        ops::linear_backward_input(stream, none, zeros({0, 6}, dtype), dx);
        expect_same_bits(dx, zeros({4, 6}, dtype), "dx");
        dx = some({4, 6});
        const Tensor before = dx.clone("test");
        ops::linear_backward_input(stream, none, zeros({0, 6}, dtype), dx, true);
        expect_same_bits(dx, before, "dx accumulated");
        ops::linear_backward_weight(stream, none, x, zeros({0, 6}), true);
        ops::linear_backward_bias(stream, none, zeros({0}));

        // no in features
        Tensor y = some({4, 6});
        ops::linear(stream, none, zeros({6, 0}, dtype), y);
        expect_same_bits(y, zeros({4, 6}, dtype), "y");
        const Tensor bias = some({6});
        for (const DType out : {dtype, DType::float32}) {
            y = random_tensor(generator, {4, 6}, out);
            ops::linear(stream, none, zeros({6, 0}, dtype), bias, y);
            for (std::int64_t row = 0; row < 4; ++row)
                EXPECT_EQ(to_doubles(y.rows(row, 1)), to_doubles(bias));
        }
        ops::linear_backward_input(stream, x, zeros({6, 0}, dtype), none);
        ops::linear_backward_weight(stream, x, none, zeros({6, 0}), true);

        // no tokens
        const Tensor weight = some({3, 6}), no_x = zeros({0, 6}, dtype), no_y = zeros({0, 3}, dtype);
        ops::linear(stream, no_x, weight, some({3}), no_y);
        ops::linear_backward_input(stream, no_y, weight, no_x, true);
        const Tensor dweight = random_tensor(generator, {3, 6}), dbias = random_tensor(generator, {3});
        const Tensor weight_before = dweight.clone("test"), bias_before = dbias.clone("test");
        ops::linear_backward_weight(stream, no_y, no_x, dweight, true);
        ops::linear_backward_bias(stream, no_y, dbias);
        expect_same_bits(dweight, weight_before, "dweight");
        expect_same_bits(dbias, bias_before, "dbias");
        ops::linear_backward_weight(stream, no_y, no_x, dweight, false);
        expect_same_bits(dweight, zeros({3, 6}), "dweight, written");

        ops::swiglu(stream, none, none, none);
        ops::swiglu_backward(stream, none, none, none, none, none);
    }
}

}  // namespace
}  // namespace tandem
