#include "engine_adapter/embedded/prefill_budget.h"

#include <algorithm>
#include <numeric>

namespace tandem::engine {
namespace {

constexpr std::int64_t kTileTokens =
    48;  // which attention takes at a time: others would leave tiles half full

}  // namespace

PrefillBudget::PrefillBudget(const model::ModelConfig& config, std::int64_t page_size,
                             std::int64_t most_tokens, std::int64_t fixed_tokens)
    : page_size_(page_size), most_tokens_(most_tokens), fixed_tokens_(fixed_tokens) {
    // What is not a product counts by the values that it reads and writes.
    constexpr double kOfValue = 16, kOfExponential = 64;
    const auto hidden = static_cast<double>(config.hidden_size);
    const auto ffn = static_cast<double>(config.intermediate_size);
    const auto layers = static_cast<double>(config.num_hidden_layers);
    const auto heads = static_cast<double>(config.num_attention_heads);
    const auto head_dim = static_cast<double>(config.head_dim);
    const double q = heads * head_dim, kv = static_cast<double>(config.num_key_value_heads) * head_dim;
    const double products = 2 * hidden * (2 * q + 2 * kv + 3 * ffn);
    of_token_ = layers * (products + kOfValue * (6 * hidden + 2 * q + 2 * kv + 3 * ffn));
    of_pair_ = layers * heads * (4 * head_dim + kOfExponential);
}

double PrefillBudget::cost(std::int64_t begin, std::int64_t count) const {
    const auto before = static_cast<double>(begin), own = static_cast<double>(count);
    return own * of_token_ + (own * before + own * (own + 1) / 2) * of_pair_;
}

double PrefillBudget::operations() const {
    if (fixed_tokens_ > 0) return cost(0, fixed_tokens_);
    return std::max(rate_ * kPassSeconds, cost(0, kFewestTokens));
}

std::int64_t PrefillBudget::tokens(std::int64_t begin, std::int64_t left, double operations) const {
    std::int64_t some = 0, many = std::min(left, most_tokens_) + 1;  // some fit, many do not
    while (many - some > 1) {
        const std::int64_t middle = (some + many) / 2;
        (cost(begin, middle) <= operations ? some : many) = middle;
    }
    if (some == left) return left;
    const std::int64_t of_pages = (begin + some) / page_size_ * page_size_ - begin;
    const std::int64_t of_tiles =
        of_pages / std::lcm(page_size_, kTileTokens) * std::lcm(page_size_, kTileTokens);
    if (of_tiles > 0) return of_tiles;
    return of_pages > 0 ? of_pages : std::min(left, page_size_ - begin % page_size_);
}

// Half of each: one that was held up by other programs does not cut the next ones to nothing. Passes of a few
// tokens say little about others.
void PrefillBudget::took(double operations, double seconds) {
    if (operations < cost(0, kFewestTokens) / 2 || seconds <= 0) return;
    const double rate = operations / seconds;
    rate_ = rate_ == 0 ? rate : (rate_ + rate) / 2;
}

}  // namespace tandem::engine
