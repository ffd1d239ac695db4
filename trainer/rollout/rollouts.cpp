#include "trainer/rollout/rollouts.h"

#include <algorithm>
#include <bit>

#include "common/error.h"
#include "common/trace.h"

namespace tandem::trainer {
namespace {

constexpr std::size_t kHeaderWords = 4;
constexpr std::int32_t kTruncated = 1, kNonFinite = 2;

}  // namespace

// Per completion: number of tokens, version (two words), flags, tokens, log-probs as bits.
std::vector<std::int32_t> pack_completions(std::span<const Completion> completions) {
    std::vector<std::int32_t> words;
    for (const Completion& c : completions) {
        words.push_back(static_cast<std::int32_t>(c.tokens.size()));
        words.push_back(static_cast<std::int32_t>(c.weight_version & 0xffffffff));
        words.push_back(static_cast<std::int32_t>(c.weight_version >> 32));
        words.push_back((c.truncated ? kTruncated : 0) | (c.non_finite ? kNonFinite : 0));
        words.insert(words.end(), c.tokens.begin(), c.tokens.end());
        for (const float logprob : c.logprobs) words.push_back(std::bit_cast<std::int32_t>(logprob));
    }
    return words;
}

std::vector<Completion> unpack_completions(std::span<const std::int32_t> words) {
    std::vector<Completion> result;
    while (!words.empty()) {
        const auto count = static_cast<std::size_t>(words[0]);
        if (words.size() < kHeaderWords || words[0] < 0 || (words.size() - kHeaderWords) / 2 < count) {
            throw ProtocolError("rollouts from rank 0 are cut short");
        }
        Completion c;
        const auto low = static_cast<std::uint64_t>(static_cast<std::uint32_t>(words[1]));
        const auto high = static_cast<std::uint64_t>(static_cast<std::uint32_t>(words[2]));
        c.weight_version = static_cast<std::int64_t>(high << 32 | low);
        c.truncated = (words[3] & kTruncated) != 0;
        c.non_finite = (words[3] & kNonFinite) != 0;
        const auto tokens = words.subspan(kHeaderWords, count);
        c.tokens.assign(tokens.begin(), tokens.end());
        for (const std::int32_t bits : words.subspan(kHeaderWords + count, count))
            c.logprobs.push_back(std::bit_cast<float>(bits));
        words = words.subspan(kHeaderWords + 2 * count);
        result.push_back(std::move(c));
    }
    return result;
}

Rollouts::Rollouts(comm::Communicator& world, std::unique_ptr<RolloutClient> client)
    : world_(world), client_(std::move(client)) {
    require((world_.rank() == 0) == (client_ != nullptr), "rank 0, and no other, talks to the engine");
}

std::vector<Completion> Rollouts::generate(std::span<const std::vector<std::int32_t>> prompts,
                                           std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                           std::int64_t version) {
    const trace::Scope scope("generate", "rollout");
    require(prompts.size() == seeds.size(), "{} prompts with {} seeds", prompts.size(), seeds.size());
    std::vector<Completion> result;
    std::size_t alone = 0;  // prompts that are asked one by one from here on
    while (result.size() < prompts.size()) {
        std::vector<std::int32_t> words;
        if (client_ != nullptr) {
            const std::size_t left = prompts.size() - result.size();
            const std::size_t count = alone > 0 ? 1 : std::min(client_->batch(), left);
            try {
                words = pack_completions(client_->generate(prompts.subspan(result.size(), count),
                                                           seeds.subspan(result.size(), count), sampling,
                                                           version));
            } catch (const NonFiniteLogits&) {
                if (count > 1) {
                    alone = count;
                    continue;
                }
                Completion none;
                none.weight_version = version;
                none.non_finite = true;
                words = pack_completions(std::span(&none, 1));
            }
            alone -= alone > 0 ? 1 : 0;
        }
        broadcast(words);
        for (Completion& completion : unpack_completions(words)) result.push_back(std::move(completion));
    }
    return result;
}

// Of each list its size, then its tokens.
std::vector<std::vector<std::int32_t>> Rollouts::lists_on_every_rank(
    const std::function<std::vector<std::vector<std::int32_t>>()>& compute) {
    if (client_ != nullptr && world_.size() == 1) return compute();
    std::vector<std::int32_t> words;
    if (client_ != nullptr) {
        for (const auto& list : compute()) {
            words.push_back(static_cast<std::int32_t>(list.size()));
            words.insert(words.end(), list.begin(), list.end());
        }
    }
    broadcast(words);
    std::vector<std::vector<std::int32_t>> lists;
    for (auto at = words.begin(); at != words.end(); at += *at + 1) lists.emplace_back(at + 1, at + 1 + *at);
    return lists;
}

void Rollouts::broadcast(std::vector<std::int32_t>& words) {
    auto size = static_cast<std::int64_t>(words.size());
    world_.broadcast({reinterpret_cast<std::byte*>(&size), sizeof(size)}, 0);
    words.resize(static_cast<std::size_t>(size));
    world_.broadcast({reinterpret_cast<std::byte*>(words.data()), words.size() * sizeof(words[0])}, 0);
}

std::vector<float> Rollouts::on_every_rank(std::size_t count,
                                           const std::function<std::vector<float>()>& compute) {
    std::vector<float> values;
    if (client_ != nullptr) values = compute();
    values.resize(count);
    world_.broadcast({reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)}, 0);
    return values;
}

}  // namespace tandem::trainer
