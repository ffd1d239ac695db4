#include "common/tokenizer/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/tokenizer/jinja/object.h"
#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {

struct Value::Mapping {
    Dict dict;
    int depth = 0;
    std::size_t weight = 0;
};

Value::Size Value::size() const {
    if (const auto* box = get<std::shared_ptr<const Sequence>>()) return {(*box)->depth, (*box)->weight};
    if (const auto* box = get<std::shared_ptr<const Mapping>>()) return {(*box)->depth, (*box)->weight};
    if (object() != nullptr) return {(*object())->depth, sizeof(Value)};
    return {0, sizeof(Value) + (string() != nullptr ? string()->size() : 0)};
}

void Value::add(Size& total, const Value& part) {
    total.depth = std::max(total.depth, part.size().depth);
    total.weight += part.size().weight;  // each at most kHeaviest: no overflow in a list that fits memory
}

void Value::close(Size& total) {
    total.weight += sizeof(Value);
    if (++total.depth > kDeepest) throw Error("values are nested too deep");
    if (total.weight > kHeaviest) throw Error("a value grows too large");
}

// --- making values: each is charged, and knows how deep and how large it is

Value::Undefined::Undefined() {
    static const auto kWhat = std::make_shared<const std::string>("value is undefined");
    what = kWhat;
}

Value Value::sequence(Runtime& runtime, List items, Kind kind) {
    constexpr std::size_t kOfAllocations = 32;
    runtime.spend(sizeof(Sequence) + kOfAllocations);
    Size size;
    for (const Value& item : items) add(size, item);
    close(size);
    Value value;
    value.data_ = std::make_shared<const Sequence>(Sequence{std::move(items), kind, size.depth, size.weight});
    return value;
}

Value Value::list(Runtime& runtime, List items) {
    return sequence(runtime, std::move(items), Kind::list);
}
Value Value::tuple(Runtime& runtime, List items) {
    return sequence(runtime, std::move(items), Kind::tuple);
}
Value Value::group(Runtime& runtime, Value grouper, Value list) {
    return sequence(runtime, {std::move(grouper), std::move(list)}, Kind::group);
}

Value Value::dict(Runtime& runtime, Dict entries) {
    constexpr std::size_t kOfAllocations = 64;
    runtime.spend(sizeof(Mapping) + kOfAllocations);
    Size size;
    for (const auto& [key, item] : entries.pairs()) {
        add(size, item);
        add(size, key);
    }
    close(size);
    Value value;
    value.data_ = std::make_shared<const Mapping>(Mapping{std::move(entries), size.depth, size.weight});
    return value;
}

Value Value::markup(std::string text) {
    Value value;
    value.data_ = std::make_shared<const Text>(Text{std::move(text), true});
    return value;
}

Value Value::from_json(const nlohmann::ordered_json& json) {
    Runtime unlimited(Limits::none());
    return from_json(unlimited, json, 0);
}

Value Value::from_json(Runtime& runtime, const nlohmann::ordered_json& json, int depth) {
    if (depth > kDeepest) throw Error("values are nested too deep");
    switch (json.type()) {
        case nlohmann::ordered_json::value_t::boolean:
            return json.get<bool>();
        case nlohmann::ordered_json::value_t::number_integer:
            return json.get<std::int64_t>();
        case nlohmann::ordered_json::value_t::number_unsigned:
            return json.get<std::uint64_t>();
        case nlohmann::ordered_json::value_t::number_float:
            return json.get<double>();
        case nlohmann::ordered_json::value_t::string:
            return json.get<std::string>();
        case nlohmann::ordered_json::value_t::array: {
            List items;
            for (const auto& item : json) items.push_back(from_json(runtime, item, depth + 1));
            return list(runtime, std::move(items));
        }
        case nlohmann::ordered_json::value_t::object: {
            Dict entries;
            for (const auto& [key, item] : json.items()) {
                entries.put(runtime, Value(key), from_json(runtime, item, depth + 1));
            }
            return dict(runtime, std::move(entries));
        }
        default:
            return None{};
    }
}

// --- asking what a value is

bool Value::is_tuple() const {
    const auto* box = get<std::shared_ptr<const Sequence>>();
    return box != nullptr && (*box)->kind != Kind::list;
}
bool Value::is_group() const {
    const auto* box = get<std::shared_ptr<const Sequence>>();
    return box != nullptr && (*box)->kind == Kind::group;
}
bool Value::is_markup() const {
    const auto* box = get<std::shared_ptr<const Text>>();
    return box != nullptr && (*box)->markup;
}

const std::string* Value::string() const {
    const auto* box = get<std::shared_ptr<const Text>>();
    return box == nullptr ? nullptr : &(*box)->text;
}

const List* Value::items() const {
    const auto* box = get<std::shared_ptr<const Sequence>>();
    return box == nullptr ? nullptr : &(*box)->items;
}

const Dict* Value::dict() const {
    const auto* box = get<std::shared_ptr<const Mapping>>();
    return box == nullptr ? nullptr : &(*box)->dict;
}

std::optional<Integer> Value::integer() const {
    if (const bool* flag = get<bool>()) return *flag ? 1 : 0;
    if (const Integer* number = get<Integer>()) return *number;
    return std::nullopt;
}

std::optional<double> Value::number() const {
    if (const double* number = get<double>()) return *number;
    if (const auto whole = integer()) return to_double(*whole);
    return std::nullopt;
}

bool Value::truthy() const {
    if (is_undefined() || is_none()) return false;
    if (const auto whole = integer()) return *whole != 0;
    if (const double* real = get<double>()) return *real != 0;
    if (string() != nullptr) return !string()->empty();
    if (items() != nullptr) return !items()->empty();
    if (dict() != nullptr) return dict()->size() > 0;
    return (*object())->truthy();
}

const char* Value::type_name() const {
    if (object() != nullptr) return (*object())->type_name();
    if (is_tuple()) return "tuple";
    if (is_markup()) return "Markup";
    constexpr const char* kNames[] = {"Undefined", "NoneType", "bool", "int", "float", "str", "list", "dict"};
    return kNames[data_.index()];
}

namespace {

// --- comparing and hashing: what is looked at is charged

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b) {
    if (a.size() != b.size()) return false;
    for (const auto& [key, value] : a.pairs()) {
        const Value* other = b.find(runtime, key);
        if (other == nullptr || !equal(runtime, value, *other)) return false;
    }
    return true;
}

// Sequences that differ in kind are never equal; views of keys and of items are sets.
bool equal_objects(Runtime& runtime, const Value& a, const Value& b) {
    if (a.object()->get() == b.object()->get()) return true;
    if (const auto* x = a.as<Range>(), *y = b.as<Range>(); x != nullptr && y != nullptr) {
        const Integer count = x->count();
        return count == y->count() &&
               (count == 0 || (x->start == y->start && (count == 1 || x->step == y->step)));
    }
    if (const auto* x = a.as<View>(), *y = b.as<View>();
        x != nullptr && y != nullptr && x->part != View::Of::values && y->part != View::Of::values) {
        if (x->part != y->part) throw Error("views of keys and of items are not compared here");
        if (x->part == View::Of::items) return equal_dicts(runtime, *x->dict.dict(), *y->dict.dict());
        if (x->dict.dict()->size() != y->dict.dict()->size()) return false;
        for (const auto& [key, unused] : x->dict.dict()->pairs()) {
            if (y->dict.dict()->find(runtime, key) == nullptr) return false;
        }
        return true;
    }
    return false;
}

template <typename T>
int sign(const T& x, const T& y) {
    return x < y ? -1 : y < x ? 1 : 0;
}

std::optional<int> order_numbers(const Value& a, const Value& b) {
    if (a.integer() && b.integer()) return sign(*a.integer(), *b.integer());
    if (a.integer()) return compare(*a.integer(), *b.number());
    if (b.integer()) {
        const auto other = compare(*b.integer(), *a.number());
        return other ? std::optional(-*other) : std::nullopt;
    }
    const double x = *a.number(), y = *b.number();
    return std::isnan(x) || std::isnan(y) ? std::nullopt : std::optional(sign(x, y));
}

}  // namespace

bool equal(Runtime& runtime, const Value& a, const Value& b) {
    runtime.look_up(0);
    if (a.is_number() && b.is_number()) return order_numbers(a, b) == 0;
    if (a.string() != nullptr && b.string() != nullptr) {
        if (a.string() == b.string()) return true;
        if (a.string()->size() != b.string()->size()) return false;
        runtime.work(a.string()->size());
        return *a.string() == *b.string();
    }
    if (a.items() != nullptr && b.items() != nullptr) {
        if (a.is_tuple() != b.is_tuple() || a.items()->size() != b.items()->size()) return false;
        for (std::size_t i = 0; i < a.items()->size(); ++i) {
            if (!equal(runtime, (*a.items())[i], (*b.items())[i])) return false;
        }
        return true;
    }
    if (a.dict() != nullptr && b.dict() != nullptr) return equal_dicts(runtime, *a.dict(), *b.dict());
    if (a.object() != nullptr && b.object() != nullptr) return equal_objects(runtime, a, b);
    return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

std::optional<int> order(Runtime& runtime, const Value& a, const Value& b) {
    runtime.look_up(0);
    for (const Value* value : {&a, &b}) {
        if (value->is_undefined()) throw Error(*value->get<Value::Undefined>()->what);
    }
    if (a.is_number() && b.is_number()) return order_numbers(a, b);
    if (a.string() != nullptr && b.string() != nullptr) {
        runtime.work(std::min(a.string()->size(), b.string()->size()));
        return sign(*a.string(), *b.string());  // bytes of UTF-8 are in the order of code points
    }
    if (a.items() != nullptr && b.items() != nullptr && a.is_tuple() == b.is_tuple()) {
        for (std::size_t i = 0; i < std::min(a.items()->size(), b.items()->size()); ++i) {
            const Value &x = (*a.items())[i], &y = (*b.items())[i];
            if (!equal(runtime, x, y)) return order(runtime, x, y);
        }
        return sign(a.items()->size(), b.items()->size());
    }
    throw Error(fmt::format("'{}' and '{}' have no order", a.type_name(), b.type_name()));
}

std::size_t hash(Runtime& runtime, const Value& value) {
    runtime.look_up(0);
    if (value.string() != nullptr) {
        runtime.work(value.string()->size());
        return std::hash<std::string_view>()(*value.string());
    }
    if (const auto whole = value.integer()) {
        return std::hash<std::int64_t>()(static_cast<std::int64_t>(*whole));
    }
    if (const double* real = value.get<double>()) {
        const bool whole = std::fabs(*real) < 1e38 && *real == std::floor(*real);
        return whole ? hash(runtime, Value(truncated(*real))) : std::hash<double>()(*real);
    }
    if (value.is_none() || value.is_undefined()) return value.is_none() ? 1 : 2;
    if (value.items() != nullptr && value.is_tuple()) {
        std::size_t code = 3;
        for (const Value& item : *value.items()) code = code * 1000003 ^ hash(runtime, item);
        return code;
    }
    if (const auto* range = value.as<Range>()) return static_cast<std::size_t>(range->count());
    if (value.object() != nullptr && value.as<View>() == nullptr) {
        return std::hash<Object*>()(value.object()->get());
    }
    throw Error(fmt::format("unhashable type: '{}'", value.type_name()));
}

}  // namespace tandem::tokenizer::jinja
