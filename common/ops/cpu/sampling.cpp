// Sampling on the CPU. A choice without restriction finds its block of logits by the blocks' sums; a
// restriction collects the largest weights and looks for a mass among them, without sorting.
#include "common/ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/error.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/row_softmax.h"
#include "common/ops/cpu/softmax_kernels.h"

namespace tandem::ops {
namespace {

using cpu::RowMax;
using cpu::RowSoftmax;

constexpr auto kBlock = static_cast<std::size_t>(detail::kSoftmaxBlock);

void exponentiate(const RowSoftmax& row, std::span<const float> logits, float* weights) {
    detail::softmax_kernels().weights(logits.data(), static_cast<std::int64_t>(logits.size()), row.max,
                                      row.inverse_temperature, weights);
}

struct Weighted {
    float weight;
    std::int32_t token;
};

bool likelier(const Weighted& a, const Weighted& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

double mass_of(std::span<const Weighted> tokens) {
    double mass = 0;
    for (const Weighted& token : tokens) mass += static_cast<double>(token.weight);
    return mass;
}

// Where, with the likeliest first, the mass of those before passes from at most `target` to more; the last one
// if it never does. Moves the likelier ones before it, in no order.
struct AtMass {
    std::size_t rank;
    double before;
};

AtMass find_mass(std::span<Weighted> tokens, double target) {
    std::size_t begin = 0, end = tokens.size();
    double before = 0;
    while (end - begin > 1) {
        const std::size_t middle = begin + (end - begin) / 2;
        const auto at = [&](std::size_t rank) { return tokens.begin() + static_cast<std::ptrdiff_t>(rank); };
        std::nth_element(at(begin), at(middle), at(end), likelier);
        const double mass = mass_of(tokens.subspan(begin, middle - begin));
        if (before + mass > target) {
            end = middle;
        } else {
            before += mass;
            begin = middle;
        }
    }
    return {begin, before};
}

// All tokens that a restriction may keep and some more, in no order, but none without weight. Collected from
// the largest weights on, because it usually keeps few.
void collect(const RowSoftmax& row, const Sampling& params, std::vector<Weighted>& tokens) {
    thread_local std::vector<float> weights;
    thread_local std::vector<std::int32_t> found;
    weights.resize(row.logits.size());
    found.resize(row.logits.size());
    exponentiate(row, row.logits, weights.data());
    tokens.clear();
    double mass = 0;
    float high = 2.0f;  // the largest is 1
    constexpr float kLeast = std::numeric_limits<float>::min();
    while (high > kLeast) {
        const float low = std::max(high * 0.0625f, kLeast);
        const std::size_t count = detail::softmax_kernels().tokens_between(
            weights.data(), static_cast<std::int64_t>(weights.size()), low, high, found.data());
        for (const std::int32_t token : std::span(found).first(count))
            tokens.push_back({weights[static_cast<std::size_t>(token)], token});
        mass += mass_of(std::span(tokens).last(count));
        if (params.top_p < 1.0f && mass >= static_cast<double>(params.top_p) * row.sum) return;
        if (params.top_k > 0 && tokens.size() >= static_cast<std::size_t>(params.top_k)) return;
        if (low <= params.min_p) return;
        high = low;
    }
}

std::int32_t likeliest_token(std::span<const float> logits, const RowMax& max) {
    const auto block = std::find(max.blocks.begin(), max.blocks.end(), max.value) - max.blocks.begin();
    const auto begin = logits.begin() + block * detail::kSoftmaxBlock;
    return static_cast<std::int32_t>(std::find(begin, logits.end(), max.value) - logits.begin());
}

// Rounding at the end must not choose an impossible token, so the last possible one takes what is left.
std::int32_t draw(const RowSoftmax& row, double uniform) {
    double left = uniform * row.sum;
    double in_block = 0;
    std::size_t begin = 0;
    for (std::size_t block = 0; block < row.blocks.size(); ++block) {
        const auto sum = static_cast<double>(row.blocks[block]);
        if (sum <= 0) continue;
        begin = block * kBlock;
        in_block = left;
        if (left < sum) break;
        left -= sum;
    }
    float weights[kBlock];
    const std::size_t size = std::min(kBlock, row.logits.size() - begin);
    exponentiate(row, row.logits.subspan(begin, size), weights);
    std::size_t last = begin;
    for (std::size_t i = 0; i < size; ++i) {
        if (weights[i] <= 0) continue;
        last = begin + i;
        in_block -= static_cast<double>(weights[i]);
        if (in_block < 0) break;
    }
    return static_cast<std::int32_t>(last);
}

// Each of the three keeps the likeliest tokens up to a rank.
std::int32_t draw_restricted(const RowSoftmax& row, const Sampling& params) {
    thread_local std::vector<Weighted> tokens;
    collect(row, params, tokens);
    std::erase_if(tokens, [&](const Weighted& token) { return token.weight < params.min_p; });
    if (params.top_k > 0 && tokens.size() > static_cast<std::size_t>(params.top_k)) {
        std::nth_element(tokens.begin(), tokens.begin() + params.top_k, tokens.end(), likelier);
        tokens.resize(static_cast<std::size_t>(params.top_k));
    }
    if (params.top_p < 1.0f) {
        const double wanted = static_cast<double>(params.top_p) * row.sum;
        const AtMass last = find_mass(tokens, wanted);
        tokens.resize(std::max<std::size_t>(1, last.rank + (last.before < wanted ? 1 : 0)));
    }
    return tokens[find_mass(tokens, params.uniform * mass_of(tokens)).rank].token;
}

struct Choice {
    std::int32_t token = kNoToken;
    float logprob = 0.0f;  // if wanted
};

Choice choose(std::span<const float> logits, const Sampling& params) {
    const RowMax max = cpu::row_max(logits);
    if (!std::isfinite(max.value) || std::isnan(logits[0])) return {};
    if (params.greedy() && !params.logprob) return {likeliest_token(logits, max)};
    // One softmax for the draw and for the log-probability: their temperatures are the same where both are.
    const RowSoftmax row = cpu::row_softmax(logits, max.value, 1.0f / params.logprob_temperature());
    if (!params.greedy() && !std::isfinite(row.sum)) return {};
    const std::int32_t token = params.greedy()       ? likeliest_token(logits, max)
                               : params.restricted() ? draw_restricted(row, params)
                                                     : draw(row, params.uniform);
    return {token, row.logprob(token)};
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const Sampling& params) {
    require(!logits.empty(), "no logits to sample from");
    return choose(logits, params).token;
}

namespace cpu {

void sample_tokens(Stream& stream, const Tensor& logits, std::span<const Sampling> samples,
                   std::span<std::int32_t> tokens, std::span<float> logprobs) {
    stream.enqueue([=, wanted = std::vector<Sampling>(samples.begin(), samples.end())] {
        ops::detail::parallel_for(static_cast<std::int64_t>(wanted.size()), [&](std::int64_t index) {
            const auto i = static_cast<std::size_t>(index);
            const Choice choice = choose(row_of(logits, wanted[i].row), wanted[i]);
            tokens[i] = choice.token;
            if (wanted[i].logprob && choice.token != kNoToken) logprobs[i] = choice.logprob;
        });
    });
}

}  // namespace cpu
}  // namespace tandem::ops
