// A dictionary in order of insertion, hashed: a look-up costs the same however many entries there are, and
// charges.
#pragma once

#include <unordered_map>

#include "common/tokenizer/jinja/value.h"

namespace tandem::tokenizer::jinja {

class Dict {
  public:
    Dict() = default;
    // Of names, the last of equal ones counts.
    Dict(Runtime& runtime, const Entries& entries);

    // A key that is there keeps its place. Throws Error where the key is unhashable.
    void put(Runtime& runtime, Value key, Value value);
    const Value* find(Runtime& runtime, const Value& key) const;
    const Value* find_name(Runtime& runtime, std::string_view key) const;
    const Pairs& pairs() const { return pairs_; }
    std::size_t size() const { return pairs_.size(); }

  private:
    std::optional<std::size_t> place(Runtime& runtime, const Value& key, std::size_t hash) const;

    Pairs pairs_;
    std::unordered_multimap<std::size_t, std::size_t> places_;  // hash of the key → index in pairs_
};

}  // namespace tandem::tokenizer::jinja
