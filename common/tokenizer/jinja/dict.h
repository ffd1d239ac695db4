// A dictionary in order of insertion, hashed: a look-up costs the same however many entries there are, and
// charges for each entry that it looks at, should many share a place.
#pragma once

#include "common/tokenizer/jinja/value.h"

namespace tandem::tokenizer::jinja {

// A name with its hash, made once for all look-ups.
class Name {
  public:
    explicit Name(std::string text);
    const std::string& text() const { return *key_.string(); }
    const Value& key() const { return key_; }
    std::size_t code() const { return code_; }

  private:
    Value key_;
    std::size_t code_;
};

class Dict {
  public:
    Dict() = default;
    // Of names, the last of equal ones counts.
    Dict(Runtime& runtime, const Entries& entries);

    // A key that is there keeps its place. Throws Error where the key is unhashable.
    void put(Runtime& runtime, Value key, Value value);
    void put(Runtime& runtime, const Name& name, Value value);
    const Value* find(Runtime& runtime, const Value& key) const;
    const Value* find(Runtime& runtime, const Name& name) const;
    const Value* find_name(Runtime& runtime, std::string_view name) const;
    const Pairs& pairs() const { return pairs_; }
    std::size_t size() const { return pairs_.size(); }

  private:
    static constexpr std::size_t kNone = SIZE_MAX;
    template <typename Same>
    std::size_t place(Runtime& runtime, std::size_t code, const Same& same) const;
    std::size_t place_of(Runtime& runtime, std::string_view name, std::size_t code) const;
    void put_at(Runtime& runtime, std::size_t place, std::size_t code, Value key, Value value);
    void add_slot(std::size_t entry);

    Pairs pairs_;
    std::vector<std::size_t> codes_;    // hash of each key
    std::vector<std::uint32_t> slots_;  // by hash: 1 + the entry, or 0; none while entries are few
};

}  // namespace tandem::tokenizer::jinja
