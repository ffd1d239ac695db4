#include "common/tokenizer/jinja/value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/error.h"

namespace tandem::tokenizer::jinja {
const Value* Arguments::find(std::size_t position, std::string_view name) const {
    if (position < positional.size()) return &positional[position];
    for (const auto& [key, value] : named) {
        if (key == name) return &value;
    }
    return nullptr;
}

Value::Size Value::size() const {
    if (const auto* box = get<std::shared_ptr<const ListBox>>()) return {(*box)->depth, (*box)->weight};
    if (const auto* box = get<std::shared_ptr<const DictBox>>()) return {(*box)->depth, (*box)->weight};
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

Value Value::list(List items) {
    Size size;
    for (const Value& item : items) add(size, item);
    close(size);
    Value value;
    value.data_ = std::make_shared<const ListBox>(ListBox{std::move(items), size.depth, size.weight});
    return value;
}

Value Value::dict(Entries entries) {
    Size size;
    for (const auto& [key, item] : entries) {
        add(size, item);
        size.weight += key.size();
    }
    close(size);
    Value value;
    value.data_ = std::make_shared<const DictBox>(DictBox{std::move(entries), size.depth, size.weight});
    return value;
}

Value Value::from_json(const nlohmann::ordered_json& json, int depth) {
    if (depth > kDeepest) throw Error("values are nested too deep");
    switch (json.type()) {
        case nlohmann::ordered_json::value_t::boolean:
            return json.get<bool>();
        case nlohmann::ordered_json::value_t::number_integer:
        case nlohmann::ordered_json::value_t::number_unsigned:
            return json.get<std::int64_t>();
        case nlohmann::ordered_json::value_t::number_float:
            return json.get<double>();
        case nlohmann::ordered_json::value_t::string:
            return json.get<std::string>();
        case nlohmann::ordered_json::value_t::array: {
            List items;
            for (const auto& item : json) items.push_back(from_json(item, depth + 1));
            return list(std::move(items));
        }
        case nlohmann::ordered_json::value_t::object: {
            Entries entries;
            for (const auto& [key, item] : json.items())
                entries.emplace_back(key, from_json(item, depth + 1));
            return dict(std::move(entries));
        }
        default:
            return None{};
    }
}

const List* Value::items() const {
    const auto* box = get<std::shared_ptr<const ListBox>>();
    return box == nullptr ? nullptr : &(*box)->items;
}

const Entries* Value::entries() const {
    if (const auto* box = get<std::shared_ptr<const DictBox>>()) return &(*box)->entries;
    return space() == nullptr ? nullptr : &space()->entries;
}

Value::Namespace* Value::space() const {
    const auto* held = get<std::shared_ptr<Namespace>>();
    return held == nullptr ? nullptr : held->get();
}

const Function* Value::function() const {
    const auto* held = get<std::shared_ptr<const Function>>();
    return held == nullptr ? nullptr : held->get();
}

std::optional<std::int64_t> Value::integer() const {
    if (const bool* flag = get<bool>()) return *flag ? 1 : 0;
    if (const std::int64_t* number = get<std::int64_t>()) return *number;
    return std::nullopt;
}

std::optional<double> Value::number() const {
    if (const double* number = get<double>()) return *number;
    if (const auto whole = integer()) return static_cast<double>(*whole);
    return std::nullopt;
}

const Value* Value::find(std::string_view key) const {
    const Entries* all = entries();
    if (all == nullptr) return nullptr;
    for (const auto& [name, value] : *all) {
        if (name == key) return &value;
    }
    return nullptr;
}

bool Value::truthy() const {
    if (is_undefined() || is_none()) return false;
    if (const auto value = number()) return *value != 0;
    if (const std::string* text = string()) return !text->empty();
    if (const List* all = items()) return !all->empty();
    if (space() == nullptr && entries() != nullptr) return !entries()->empty();
    return true;
}

const char* Value::type_name() const {
    constexpr const char* kNames[] = {"Undefined", "NoneType", "bool", "int",       "float",
                                      "str",       "list",     "dict", "Namespace", "function"};
    return kNames[data_.index()];
}

namespace {

bool equal_entries(const Entries& a, const Entries& b) {
    const auto by_key = [](const Entries& entries) {
        std::vector<const std::pair<std::string, Value>*> sorted;
        for (const auto& entry : entries) sorted.push_back(&entry);
        std::sort(sorted.begin(), sorted.end(), [](auto* x, auto* y) { return x->first < y->first; });
        return sorted;
    };
    if (a.size() != b.size()) return false;
    const auto left = by_key(a), right = by_key(b);
    return std::equal(left.begin(), left.end(), right.begin(),
                      [](auto* x, auto* y) { return x->first == y->first && equal(x->second, y->second); });
}

}  // namespace

bool equal(const Value& a, const Value& b) {
    if (a.weight() != b.weight()) return false;  // found at once
    if (const auto x = a.integer(), y = b.integer(); x && y) return *x == *y;
    if (const auto x = a.number(), y = b.number(); x && y) return *x == *y;
    if (a.string() != nullptr && b.string() != nullptr) return *a.string() == *b.string();
    if (a.items() != nullptr && b.items() != nullptr) {
        return std::equal(a.items()->begin(), a.items()->end(), b.items()->begin(), b.items()->end(),
                          [](const Value& x, const Value& y) { return equal(x, y); });
    }
    if (a.space() != nullptr || b.space() != nullptr) return a.space() == b.space();
    if (a.entries() != nullptr && b.entries() != nullptr) {
        return equal_entries(*a.entries(), *b.entries());
    }
    if (a.function() != nullptr) return a.function() == b.function();
    return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

std::optional<int> order(const Value& a, const Value& b) {
    const auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
    if (const auto x = a.integer(), y = b.integer(); x && y) return sign(*x, *y);
    if (const auto x = a.number(), y = b.number(); x && y) return sign(*x, *y);
    if (a.string() != nullptr && b.string() != nullptr) return sign(*a.string(), *b.string());
    if (a.items() != nullptr && b.items() != nullptr) {
        for (std::size_t i = 0; i < std::min(a.items()->size(), b.items()->size()); ++i) {
            if (!equal((*a.items())[i], (*b.items())[i])) return order((*a.items())[i], (*b.items())[i]);
        }
        return sign(a.items()->size(), b.items()->size());
    }
    return std::nullopt;
}

}  // namespace tandem::tokenizer::jinja
