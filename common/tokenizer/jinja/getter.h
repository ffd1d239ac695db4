// What a filter looks at in each item: the item, or a part of it such as "a.b" or "0.name", with letters made
// small.
#pragma once

#include <memory>
#include <vector>

#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {

class Getter {
  public:
    // path: null or None for the item itself. otherwise: in the place of a part that is not there; may be
    // null.
    Getter(Runtime& runtime, const Value* path, bool ignores_case, const Value* otherwise = nullptr);
    Value operator()(Runtime& runtime, const Value& item) const;

  private:
    std::shared_ptr<const List> parts_;
    bool ignores_case_;
    std::optional<Value> otherwise_;
};

// By one part or several with commas between, as a list: what sort compares.
class SortKey {
  public:
    SortKey(Runtime& runtime, const Value* paths, bool ignores_case);
    Value operator()(Runtime& runtime, const Value& item) const;

  private:
    std::vector<Getter> getters_;
};

// Stable, by the keys; backwards keeps the order of equal ones too. Throws Error: keys without an order.
List sorted(Runtime& runtime, List items, const std::function<Value(const Value&)>& key,
            bool backwards = false);
Value lowered(Runtime& runtime, const Value& value);  // a string in small letters, anything else as it is

}  // namespace tandem::tokenizer::jinja
