#include "common/tokenizer/jinja/getter.h"

#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {

Value lowered(Runtime& runtime, const Value& value) {
    if (value.string() == nullptr) return value;
    runtime.case_work(value.string()->size());
    runtime.spend(value.string()->size());
    return lower(*value.string());
}

Getter::Getter(const Value* path, bool ignores_case, const Value* otherwise) : ignores_case_(ignores_case) {
    if (otherwise != nullptr && !otherwise->is_none()) otherwise_ = *otherwise;
    if (path == nullptr || path->is_none()) return;
    if (path->string() == nullptr) {
        parts_.push_back(*path);
        return;
    }
    split(*path->string(), ".", -1, [this](std::string_view part) {
        const auto number = is_all(part, CharacterClass::digit) ? parse_integer(part) : std::nullopt;
        parts_.push_back(number ? Value(*number) : Value(std::string(part)));
    });
}

Value Getter::operator()(Runtime& runtime, const Value& item) const {
    Value at = item;
    for (const Value& part : parts_) {
        at = subscript(runtime, at, part);
        if (otherwise_ && at.is_undefined()) at = *otherwise_;
    }
    return ignores_case_ ? lowered(runtime, at) : at;
}

SortKey::SortKey(const Value* paths, bool ignores_case) {
    if (paths == nullptr || paths->string() == nullptr) {
        getters_.emplace_back(paths, ignores_case);
        return;
    }
    split(*paths->string(), ",", -1, [&](std::string_view part) {
        const Value path{std::string(part)};
        getters_.emplace_back(&path, ignores_case);
    });
}

Value SortKey::operator()(Runtime& runtime, const Value& item) const {
    List parts;
    runtime.spend(getters_.size() * sizeof(Value));
    for (const Getter& getter : getters_) parts.push_back(getter(runtime, item));
    return Value::list(std::move(parts));
}

List sorted(Runtime& runtime, List items, const std::function<Value(const Value&)>& key, bool backwards) {
    std::vector<std::pair<Value, Value>> keyed;  // key, item
    runtime.spend(items.size() * 2 * sizeof(Value));
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
    for (auto& [by, item] : keyed) out.push_back(std::move(item));
    return out;
}

}  // namespace tandem::tokenizer::jinja
