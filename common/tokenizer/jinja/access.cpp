// Getting at the parts of a value.
#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

[[noreturn]] void fail_undefined(const Value& value) {
    throw Error(value.get<Value::Undefined>()->what);
}

// Python's index rule: negative ones count from the end. npos: outside.
std::size_t place_of(std::int64_t index, std::size_t size) {
    const auto count = static_cast<std::int64_t>(size);
    if (index < 0) index += count;
    return index < 0 || index >= count ? std::string::npos : static_cast<std::size_t>(index);
}

}  // namespace

List elements(Runtime& runtime, const Value& value) {
    if (value.is_undefined()) return {};
    List out;
    if (value.items() != nullptr) {
        runtime.spend(value.items()->size() * sizeof(Value));
        for (const Value& item : *value.items()) {
            if (item.string() != nullptr) runtime.work(item.string()->size());
        }
        return *value.items();
    }
    if (value.space() == nullptr && value.entries() != nullptr) {
        runtime.spend(value.entries()->size() * sizeof(Value));
        for (const auto& [key, unused] : *value.entries()) out.emplace_back(key);
        return out;
    }
    if (value.string() != nullptr) {
        runtime.spend(value.string()->size() * sizeof(Value));
        for (const std::string_view c : characters(*value.string())) out.emplace_back(std::string(c));
        return out;
    }
    throw Error(fmt::format("'{}' object is not iterable", value.type_name()));
}

std::size_t length(Runtime& runtime, const Value& value) {
    if (value.is_undefined()) return 0;
    if (value.items() != nullptr) return value.items()->size();
    if (value.string() != nullptr) {
        runtime.work(value.string()->size());
        return count_characters(*value.string());
    }
    if (value.space() == nullptr && value.entries() != nullptr) return value.entries()->size();
    throw Error(fmt::format("object of type '{}' has no len()", value.type_name()));
}

// Values of different weights are known to differ; dictionaries are sorted.
bool equal(Runtime& runtime, const Value& a, const Value& b) {
    constexpr std::size_t kOfContainers = 8;
    const std::size_t weight = a.weight();
    if (weight == b.weight()) runtime.work(a.string() != nullptr ? weight : weight * kOfContainers);
    return equal(a, b);
}

std::optional<int> order(Runtime& runtime, const Value& a, const Value& b) {
    runtime.work(std::min(a.weight(), b.weight()));
    return order(a, b);
}

Value attribute(Runtime& runtime, const Value& object, const std::string& name) {
    if (object.is_undefined()) fail_undefined(object);
    if (object.entries() != nullptr) runtime.look_through(object.entries()->size());
    if (has_method(object, name)) {
        return Function([name](const Arguments&) -> Value {
            throw Error("method " + name + " can only be called where it is named");
        });
    }
    if (const Value* found = object.find(name)) return *found;
    return Value::Undefined{fmt::format("'{} object' has no attribute '{}'", object.type_name(), name)};
}

Value subscript(Runtime& runtime, const Value& object, const Value& index) {
    if (object.is_undefined()) fail_undefined(object);
    if (const auto number = index.integer();
        number && (object.items() != nullptr || object.string() != nullptr)) {
        const std::size_t place = place_of(*number, length(runtime, object));
        if (place == std::string::npos) {
            return Value::Undefined{fmt::format("{} object has no element {}", object.type_name(), *number)};
        }
        if (object.items() != nullptr) return (*object.items())[place];
        runtime.work(object.string()->size() * sizeof(std::string_view));
        return std::string(characters(*object.string())[place]);
    }
    if (index.string() == nullptr) {
        return Value::Undefined{fmt::format("{} object has no element {}", object.type_name(), index.repr())};
    }
    if (object.entries() != nullptr) runtime.look_through(object.entries()->size());
    if (const Value* found = object.find(*index.string())) return *found;
    return attribute(runtime, object, *index.string());
}

Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
    if (object.is_undefined()) fail_undefined(object);
    if (object.items() == nullptr && object.string() == nullptr) {
        throw Error(fmt::format("'{}' object cannot be sliced", object.type_name()));
    }
    const List all = elements(runtime, object);
    const auto count = static_cast<std::int64_t>(all.size());
    const auto number = [](const Value& value, std::int64_t otherwise) {
        if (value.is_none() || value.is_undefined()) return otherwise;
        if (!value.integer()) throw Error("slice indices must be integers");
        return *value.integer();
    };
    const std::int64_t by = number(step, 1);
    if (by == 0) throw Error("slice step cannot be zero");
    const auto bound = [&](std::int64_t at) {
        if (at < 0) at = std::max(at + count, std::int64_t{by < 0 ? -1 : 0});
        return std::min(at, by < 0 ? count - 1 : count);
    };
    constexpr std::int64_t kDefault = INT64_MIN;
    const std::int64_t first = number(start, kDefault), last = number(stop, kDefault);
    std::int64_t at = first == kDefault ? (by < 0 ? count - 1 : 0) : bound(first);
    const std::int64_t end = last == kDefault ? (by < 0 ? -1 : count) : bound(last);
    List out;
    std::string text;
    while (by > 0 ? at < end : at > end) {
        const Value& item = all[static_cast<std::size_t>(at)];
        if (object.string() != nullptr) {
            text += *item.string();
        } else {
            out.push_back(item);
        }
        if (by > count || by < -count) break;
        at += by;
    }
    if (object.string() != nullptr) return text;
    return Value::list(std::move(out));
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
    if (container.string() != nullptr) {
        if (item.string() == nullptr) {
            throw Error(
                fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
        }
        runtime.work(search_work(*container.string(), item.string()->size()));
        return container.string()->find(*item.string()) != std::string::npos;
    }
    if (container.space() == nullptr && container.entries() != nullptr) {
        runtime.look_through(container.entries()->size());
        return item.string() != nullptr && container.find(*item.string()) != nullptr;
    }
    const List all = elements(runtime, container);
    return std::any_of(all.begin(), all.end(), [&](const Value& one) { return equal(runtime, one, item); });
}

}  // namespace tandem::tokenizer::jinja
