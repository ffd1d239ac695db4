#include "common/tokenizer/jinja/getter.h"

#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/items.h"
#include "common/tokenizer/jinja/search.h"

namespace tandem::tokenizer::jinja {

Value lowered(Runtime& runtime, const Value& value) {
    return value.string() == nullptr ? value : Value(lower(runtime, *value.string()));
}

Getter::Getter(Runtime& runtime, const Value* path, bool ignores_case, const Value* otherwise)
    : ignores_case_(ignores_case) {
    if (otherwise != nullptr && !otherwise->is_none()) otherwise_ = *otherwise;
    Items parts(runtime);
    if (path != nullptr && path->string() != nullptr) {
        split(runtime, *path->string(), ".", -1, [&](std::string_view part) {
            const bool digits = is_all(runtime, part, CharacterClass::digit);
            const auto number = digits ? parse_integer(part) : std::nullopt;
            runtime.spend(Value::kOfString + part.size());
            parts.add(number ? Value(*number) : Value(std::string(part)));
        });
    } else if (path != nullptr && !path->is_none()) {
        parts.add(*path);
    }
    parts_ = std::make_shared<const List>(parts.take());
}

Value Getter::operator()(Runtime& runtime, const Value& item) const {
    Value at = item;
    for (const Value& part : *parts_) {
        at = subscript(runtime, at, part);
        if (otherwise_ && at.is_undefined()) at = *otherwise_;
    }
    return ignores_case_ ? lowered(runtime, at) : at;
}

SortKey::SortKey(Runtime& runtime, const Value* paths, bool ignores_case) {
    if (paths == nullptr || paths->string() == nullptr) {
        getters_.emplace_back(runtime, paths, ignores_case);
        return;
    }
    split(runtime, *paths->string(), ",", -1, [&](std::string_view part) {
        runtime.spend(2 * sizeof(Getter) + Value::kOfString + part.size());
        const Value path{std::string(part)};
        getters_.emplace_back(runtime, &path, ignores_case);
    });
}

Value SortKey::operator()(Runtime& runtime, const Value& item) const {
    List parts;
    runtime.spend(getters_.size() * sizeof(Value));
    parts.reserve(getters_.size());
    for (const Getter& getter : getters_) parts.push_back(getter(runtime, item));
    return Value::list(runtime, std::move(parts));
}

List sorted(Runtime& runtime, List items, const std::function<Value(const Value&)>& key, bool backwards) {
    std::vector<std::pair<Value, Value>> keyed;       // key, item
    runtime.spend(items.size() * 4 * sizeof(Value));  // with what is sorted into, and the result
    keyed.reserve(items.size());
    for (Value& item : items) {
        Value by = key(item);
        keyed.emplace_back(std::move(by), std::move(item));
    }
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
        const auto ordered = order(runtime, a.first, b.first);
        if (!ordered) throw Error("what is not a number has no order");
        return backwards ? *ordered > 0 : *ordered < 0;
    });
    List out;
    out.reserve(keyed.size());
    for (auto& [by, item] : keyed) out.push_back(std::move(item));
    return out;
}

}  // namespace tandem::tokenizer::jinja
