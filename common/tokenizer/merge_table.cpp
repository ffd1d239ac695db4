#include "common/tokenizer/merge_table.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace tandem::tokenizer {
namespace {

constexpr std::size_t kShort = 48;  // symbols

}  // namespace

void MergeTable::reserve(std::size_t merges) {
    slots_.assign(std::bit_ceil(merges * 2 + 2), Slot{});
    mask_ = slots_.size() - 1;
}

void MergeTable::insert(std::int32_t left, std::int32_t right, Merge merge) {
    const std::uint64_t key = key_of(left, right);
    std::size_t at = slot_of(key);
    while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & mask_;
    slots_[at] = {key, merge};
}

void MergeTable::merge_all(std::vector<std::int32_t>& symbols) const {
    if (symbols.size() < 2) return;
    symbols.size() <= kShort ? merge_short(symbols) : merge_long(symbols);
}

void MergeTable::merge_short(std::vector<std::int32_t>& symbols) const {
    Merge with_next[kShort];  // of symbols[i] and symbols[i + 1]
    std::size_t count = symbols.size();
    for (std::size_t i = 0; i + 1 < count; ++i) with_next[i] = find(symbols[i], symbols[i + 1]);
    while (count > 1) {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < count; ++i) {
            if (with_next[i].rank < with_next[best].rank) best = i;
        }
        if (with_next[best].rank == kNever) break;
        symbols[best] = with_next[best].id;
        std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 2,
                  symbols.begin() + static_cast<std::ptrdiff_t>(count),
                  symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
        if (best + 2 < count) std::copy(with_next + best + 2, with_next + count - 1, with_next + best + 1);
        --count;
        if (best > 0) with_next[best - 1] = find(symbols[best - 1], symbols[best]);
        if (best + 1 < count) with_next[best] = find(symbols[best], symbols[best + 1]);
    }
    symbols.resize(count);
}

void MergeTable::merge_long(std::vector<std::int32_t>& symbols) const {
    struct Candidate {
        std::uint32_t rank;
        std::uint32_t at;  // left symbol
        std::int32_t id;   // of the result; tells a candidate whose symbols have changed meanwhile
        bool operator<(const Candidate& other) const {
            return rank != other.rank ? rank > other.rank : at > other.at;
        }
    };
    constexpr std::uint32_t kNone = 0xFFFFFFFF;
    const auto count = static_cast<std::uint32_t>(symbols.size());
    std::vector<std::uint32_t> next(count), previous(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        next[i] = i + 1 < count ? i + 1 : kNone;
        previous[i] = i == 0 ? kNone : i - 1;
    }
    std::priority_queue<Candidate> queue;
    const auto consider = [&](std::uint32_t left) {
        const Merge merge = find(symbols[left], symbols[next[left]]);
        if (merge.rank != kNever) queue.push({merge.rank, left, merge.id});
    };
    for (std::uint32_t i = 0; i + 1 < count; ++i) consider(i);
    constexpr std::int32_t kGone = -1;
    while (!queue.empty()) {
        const Candidate top = queue.top();
        queue.pop();
        if (symbols[top.at] == kGone || next[top.at] == kNone) continue;
        const std::uint32_t right = next[top.at];
        const Merge now = find(symbols[top.at], symbols[right]);
        if (now.rank == kNever || now.id != top.id) continue;
        symbols[top.at] = top.id;
        symbols[right] = kGone;
        next[top.at] = next[right];
        if (next[right] != kNone) {
            previous[next[right]] = top.at;
            consider(top.at);
        }
        if (previous[top.at] != kNone) consider(previous[top.at]);
    }
    std::erase(symbols, kGone);
}

}  // namespace tandem::tokenizer
