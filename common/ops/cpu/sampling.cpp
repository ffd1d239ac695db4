// Sampling on the CPU: a row is made into weights once; a restriction sorts as many of them as it needs.
#include "common/ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/error.h"
#include "common/ops/cpu/token_logprob.h"

namespace tandem::ops {
namespace {

struct Weighted {
    float weight;
    std::int32_t token;
};

bool likelier(const Weighted& a, const Weighted& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

// The likeliest tokens in order, as many as top_k, top_p and min_p leave. `weights` are unnormalised, `total`
// their sum.
std::vector<Weighted> restrict_to_likeliest(std::span<const float> weights, double total,
                                            const Sampling& params) {
    std::vector<Weighted> all(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) all[i] = {weights[i], static_cast<std::int32_t>(i)};
    std::size_t limit = all.size();
    if (params.top_k > 0) limit = std::min(limit, static_cast<std::size_t>(params.top_k));

    // Sorted piece by piece: usually a few hundred tokens hold the mass that top_p asks for.
    std::size_t sorted = 0;
    std::size_t kept = 0;
    double mass = 0;
    const double wanted = static_cast<double>(params.top_p) * total;
    while (kept < limit) {
        if (kept == sorted) {
            const std::size_t next = std::min(limit, std::max<std::size_t>(256, sorted * 4));
            const auto begin = all.begin() + static_cast<std::ptrdiff_t>(sorted);
            const auto middle = all.begin() + static_cast<std::ptrdiff_t>(next);
            if (middle != all.end()) std::nth_element(begin, middle, all.end(), likelier);
            std::sort(begin, middle, likelier);
            sorted = next;
        }
        const bool enough = params.top_p < 1.0f && mass >= wanted;
        const bool too_small = all[kept].weight < params.min_p * all[0].weight;
        if (kept > 0 && (enough || too_small)) break;
        mass += static_cast<double>(all[kept].weight);
        ++kept;
    }
    all.resize(kept);
    return all;
}

// Compares in many strands, which the compiler keeps in vector registers; std::max_element has one.
float largest_of(std::span<const float> logits) {
    constexpr std::size_t kStrands = 32;
    float best[kStrands];
    std::fill_n(best, kStrands, logits[0]);
    std::size_t i = 0;
    for (; i + kStrands <= logits.size(); i += kStrands) {
        for (std::size_t j = 0; j < kStrands; ++j)
            best[j] = logits[i + j] > best[j] ? logits[i + j] : best[j];
    }
    for (; i < logits.size(); ++i) best[0] = logits[i] > best[0] ? logits[i] : best[0];
    return *std::max_element(best, best + kStrands);
}

// weights[i] = exp((logits[i] - max) / temperature); returns their sum, which is not finite when the logits
// are not.
double exponentiate(std::span<const float> logits, float temperature, std::vector<float>& weights) {
    const float largest = largest_of(logits);
    weights.resize(logits.size());
    const float scale = 1.0f / temperature;
    for (std::size_t i = 0; i < logits.size(); ++i) weights[i] = std::exp((logits[i] - largest) * scale);
    double total = 0;
    for (const float weight : weights) total += static_cast<double>(weight);
    return std::isfinite(largest) ? total : static_cast<double>(largest);
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const Sampling& params) {
    require(!logits.empty(), "no logits to sample from");
    if (params.greedy()) {
        const float largest = largest_of(logits);
        if (!std::isfinite(largest)) return kNoToken;
        return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
    }
    thread_local std::vector<float> weights;
    const double total = exponentiate(logits, params.temperature, weights);
    if (!std::isfinite(total)) return kNoToken;
    std::int32_t last = 0;  // rounding at the end must not choose an impossible token
    if (!params.restricted()) {
        double at = params.uniform * total;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            if (weights[i] <= 0) continue;
            last = static_cast<std::int32_t>(i);
            at -= static_cast<double>(weights[i]);
            if (at < 0) return last;
        }
        return last;
    }
    const auto likeliest = restrict_to_likeliest(weights, total, params);
    double at = 0;
    for (const Weighted& candidate : likeliest) at += static_cast<double>(candidate.weight);
    at *= params.uniform;
    for (const Weighted& candidate : likeliest) {
        if (candidate.weight <= 0) break;
        last = candidate.token;
        at -= static_cast<double>(candidate.weight);
        if (at < 0) return last;
    }
    return last;
}

namespace cpu {

void sample_tokens(Stream& stream, const Tensor& logits, std::span<const Sampling> samples,
                   std::span<std::int32_t> tokens, std::span<float> logprobs) {
    stream.enqueue([=, wanted = std::vector<Sampling>(samples.begin(), samples.end())] {
        const auto vocab = static_cast<std::size_t>(logits.dim(1));
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const Sampling& sampling = wanted[i];
            const float* row = logits.data<float>() + static_cast<std::size_t>(sampling.row) * vocab;
            tokens[i] = sample_token({row, vocab}, sampling);
            if (!sampling.logprob || tokens[i] == kNoToken) continue;
            logprobs[i] =
                token_logprob(row, logits.dim(1), tokens[i], 1.0f / sampling.logprob_temperature()).logprob;
        }
    });
}

}  // namespace cpu
}  // namespace tandem::ops
