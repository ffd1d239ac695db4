// Sampling on the CPU. A choice without restriction finds its block of logits by the blocks' sums; a
// restriction sorts as many weights as it needs.
#include "common/ops/sampling.h"

#include <algorithm>
#include <cmath>
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

// The tokens of a row from the likeliest on, but for those without weight; found and sorted piece by piece,
// because a restriction usually keeps few.
class Likeliest {
  public:
    void start(const RowSoftmax& row) {
        weights_.resize(row.logits.size());
        found_.resize(row.logits.size());
        exponentiate(row, row.logits, weights_.data());
        all_.clear();
        sorted_ = 0;
        low_ = 2.0f;
    }

    // The ranks must be asked for in order. nullptr behind the last one; else valid until the next call.
    const Weighted* at(std::size_t rank) {
        while (rank == all_.size() && low_ > 0.0f) find_more();
        if (rank == all_.size()) return nullptr;
        if (rank == sorted_) sort_more();
        return &all_[rank];
    }

  private:
    // Down to a sixteenth of the least weight yet; in the end all that is left.
    void find_more() {
        const float high = low_;
        low_ = high > 1e-36f ? high * 0.0625f : 0.0f;
        const std::size_t count = detail::softmax_kernels().tokens_between(
            weights_.data(), static_cast<std::int64_t>(weights_.size()),
            std::max(low_, std::numeric_limits<float>::min()), high, found_.data());
        for (const std::int32_t token : std::span(found_).first(count))
            all_.push_back({weights_[static_cast<std::size_t>(token)], token});
    }

    void sort_more() {
        const std::size_t next = std::min(all_.size(), std::max<std::size_t>(256, sorted_ * 4));
        const auto begin = all_.begin() + static_cast<std::ptrdiff_t>(sorted_);
        const auto middle = all_.begin() + static_cast<std::ptrdiff_t>(next);
        if (middle != all_.end()) std::nth_element(begin, middle, all_.end(), likelier);
        std::sort(begin, middle, likelier);
        sorted_ = next;
    }

    std::vector<float> weights_;
    std::vector<std::int32_t> found_;
    std::vector<Weighted> all_;  // with a weight of low_ or more; the first sorted_ in order
    std::size_t sorted_ = 0;
    float low_ = 0.0f;
};

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

std::int32_t draw_restricted(const RowSoftmax& row, const Sampling& params) {
    thread_local Likeliest likeliest;
    likeliest.start(row);
    const std::size_t limit = params.top_k > 0 ? static_cast<std::size_t>(params.top_k) : row.logits.size();
    const double wanted = static_cast<double>(params.top_p) * row.sum;
    const float least = params.min_p * likeliest.at(0)->weight;
    std::vector<Weighted> kept;
    double mass = 0;
    while (kept.size() < limit) {
        const Weighted* const next = likeliest.at(kept.size());
        const bool enough = params.top_p < 1.0f && mass >= wanted;
        if (next == nullptr || (!kept.empty() && (enough || next->weight < least))) break;
        mass += static_cast<double>(next->weight);
        kept.push_back(*next);
    }
    double left = params.uniform * mass;
    for (const Weighted& candidate : kept) {
        left -= static_cast<double>(candidate.weight);
        if (left < 0) return candidate.token;
    }
    return kept.back().token;
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
