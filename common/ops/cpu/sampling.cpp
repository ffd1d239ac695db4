// Sampling on the CPU. A choice without restriction finds its block of logits by the blocks' sums; a
// restriction counts tokens into classes of about the same weight, and looks into two of them.
#include "common/ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/error.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/row_softmax.h"
#include "common/ops/cpu/softmax_kernels.h"
#include "common/ops/cpu/weight_classes.h"

namespace tandem::ops {
namespace {

using cpu::RowMax;
using cpu::RowSoftmax;
using cpu::WeightClasses;
using cpu::Weighted;

constexpr auto kBlock = static_cast<std::size_t>(detail::kSoftmaxBlock);

void exponentiate(const RowSoftmax& row, std::span<const float> logits, float* weights) {
    detail::softmax_kernels().weights(logits.data(), static_cast<std::int64_t>(logits.size()), row.max,
                                      row.inverse_temperature, weights);
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

// Each restriction keeps the likeliest tokens up to a rank: classes of them whole, and some of one more.
struct Kept {
    std::size_t classes = 0;
    double mass = 0;             // of these
    std::vector<Weighted> rest;  // of the class behind them; perhaps none
};

// By top_k and top_p: what min_p leaves out is in no class.
void keep(const RowSoftmax& row, const Sampling& params, const WeightClasses& all, Kept& kept) {
    const std::size_t most =
        params.top_k > 0 ? static_cast<std::size_t>(params.top_k) : std::numeric_limits<std::size_t>::max();
    const double wanted = params.top_p < 1.0f ? static_cast<double>(params.top_p) * row.sum
                                              : std::numeric_limits<double>::infinity();
    std::size_t tokens = 0, at = 0;
    kept.mass = 0;
    for (; at + 1 < all.size(); ++at) {
        if (tokens + all.tokens(at) >= most || kept.mass + all.mass(at) >= wanted) break;
        tokens += all.tokens(at);
        kept.mass += all.mass(at);
    }
    kept.classes = at;
    std::vector<Weighted>& rest = kept.rest;
    all.collect(at, rest);
    if (rest.size() > most - tokens) {
        std::nth_element(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(most - tokens), rest.end(),
                         cpu::likelier);
        rest.resize(most - tokens);
    }
    if (!rest.empty() && params.top_p < 1.0f) {
        const cpu::AtMass last = cpu::find_mass(rest, wanted - kept.mass);
        const std::size_t fewest = tokens == 0 ? 1 : 0;
        rest.resize(std::max(fewest, last.rank + (kept.mass + last.before < wanted ? 1 : 0)));
    }
}

std::int32_t draw_restricted(const RowSoftmax& row, const Sampling& params) {
    thread_local std::vector<float> weights;
    thread_local WeightClasses all;
    thread_local Kept kept;
    weights.resize(row.logits.size());
    exponentiate(row, row.logits, weights.data());
    all.count(weights, params.min_p);
    keep(row, params, all, kept);
    const double target = params.uniform * (kept.mass + cpu::mass_of(kept.rest));
    double before = 0;
    for (std::size_t at = 0; at < kept.classes; ++at) {
        if (before + all.mass(at) > target) {
            all.collect(at, kept.rest);
            break;
        }
        before += all.mass(at);
    }
    return kept.rest[cpu::find_mass(kept.rest, target - before).rank].token;
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
