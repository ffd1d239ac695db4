// The merges of BPE: a flat hash table from two neighbours to rank and result, and the merging itself.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::tokenizer {

class MergeTable {
  public:
    struct Merge {
        std::uint32_t rank = kNever;
        std::int32_t id = -1;
    };
    static constexpr std::uint32_t kNever = 0xFFFFFFFF;

    void reserve(std::size_t merges);
    void insert(std::int32_t left, std::int32_t right, Merge merge);  // the last of equal pairs wins
    Merge find(std::int32_t left, std::int32_t right) const {
        const std::uint64_t key = key_of(left, right);
        for (std::size_t at = slot_of(key);; at = (at + 1) & mask_) {
            if (slots_[at].key == key) return slots_[at].merge;
            if (slots_[at].key == kFree) return {};
        }
    }

    // Merges until nothing merges. Short pieces are scanned, long ones go through a heap: O(n log n).
    void merge_all(std::vector<std::int32_t>& symbols) const;

  private:
    struct Slot {
        std::uint64_t key = kFree;
        Merge merge;
    };
    static constexpr std::uint64_t kFree = ~std::uint64_t{0};  // ids are not negative

    static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
        return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
               static_cast<std::uint32_t>(right);
    }
    std::size_t slot_of(std::uint64_t key) const {
        return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ull) >> 32) & mask_;
    }
    void merge_short(std::vector<std::int32_t>& symbols) const;
    void merge_long(std::vector<std::int32_t>& symbols) const;

    std::vector<Slot> slots_ = std::vector<Slot>(2);
    std::size_t mask_ = 1;
};

}  // namespace tandem::tokenizer
