// value | filter. Those that chat templates use, as jinja2 and (tojson) transformers define them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

using Filter = Value (*)(Runtime&, const Value&, const Arguments&);
using R = Runtime&;
using V = const Value&;
using A = const Arguments&;

std::string text_of(const Arguments& arguments, std::size_t place, const char* name, const char* otherwise) {
    const Value* value = arguments.find(place, name);
    return value == nullptr ? otherwise : value->str();
}

// "a.b" of an item, as map(attribute=…) and the like take it.
Value path_of(R runtime, const Value& item, const Value& path) {
    if (path.string() == nullptr) return subscript(runtime, item, path);
    Value at = item;
    for (const std::string& name : split(*path.string(), ".", -1)) {
        if (at.is_undefined()) break;
        at = subscript(runtime, at, Value(name));
    }
    return at;
}

Arguments behind(const Arguments& arguments, std::size_t first) {
    Arguments rest;
    rest.named = arguments.named;
    for (std::size_t i = first; i < arguments.positional.size(); ++i) {
        rest.positional.push_back(arguments.positional[i]);
    }
    return rest;
}

// jinja2 takes items when they are asked for, so that what cannot be iterated hurts only then.
bool never_iterated(const Value& value) {
    return value.is_none();
}

Value map(R runtime, V value, A arguments) {
    List out;
    if (never_iterated(value)) return Value::Undefined{"'NoneType' object is not iterable"};
    const Value* path = arguments.find(SIZE_MAX, "attribute");
    const Value* otherwise = arguments.find(SIZE_MAX, "default");
    if (path == nullptr && (arguments.positional.empty() || arguments.positional[0].string() == nullptr)) {
        throw Error("map needs attribute=… or the name of a filter");
    }
    for (const Value& item : elements(runtime, value)) {
        if (path == nullptr) {
            out.push_back(
                apply_filter(runtime, *arguments.positional[0].string(), item, behind(arguments, 1)));
            continue;
        }
        Value found = path_of(runtime, item, *path);
        out.push_back(found.is_undefined() && otherwise != nullptr ? *otherwise : found);
    }
    return Value::list(std::move(out));
}

// select, reject, selectattr, rejectattr: items, or attributes of theirs, that pass a test.
Value choose(R runtime, V value, A arguments, bool attribute, bool wanted) {
    List out;
    if (never_iterated(value)) return Value::Undefined{"'NoneType' object is not iterable"};
    if (attribute && arguments.positional.empty()) throw Error("selectattr and rejectattr need an attribute");
    const std::size_t first = attribute ? 1 : 0;
    const Value* test = arguments.positional.size() > first ? &arguments.positional[first] : nullptr;
    if (test != nullptr && test->string() == nullptr) throw Error("the name of a test must be a string");
    for (const Value& item : elements(runtime, value)) {
        const Value subject = attribute ? path_of(runtime, item, arguments.positional[0]) : item;
        const bool passes = test == nullptr
                                ? subject.truthy()
                                : apply_test(runtime, *test->string(), subject, behind(arguments, first + 1));
        if (passes == wanted) out.push_back(item);
    }
    return Value::list(std::move(out));
}

Value join(R runtime, V value, A arguments) {
    const std::string separator = text_of(arguments, 0, "d", "");
    const Value* path = arguments.find(1, "attribute");
    std::string out;
    bool first = true;
    for (const Value& item : elements(runtime, value)) {
        const std::string text = (path == nullptr ? item : path_of(runtime, item, *path)).str();
        runtime.spend(text.size() + separator.size());
        if (!first) out += separator;
        first = false;
        out += text;
    }
    return out;
}

Value reverse(R runtime, V value, A) {
    List all = elements(runtime, value);
    std::reverse(all.begin(), all.end());
    if (value.string() == nullptr) return Value::list(std::move(all));
    std::string out;
    for (const Value& c : all) out += *c.string();
    return out;
}

Value sort(R runtime, V value, A arguments) {
    List all = elements(runtime, value);
    const Value* backwards = arguments.find(0, "reverse");
    const Value* path = arguments.find(2, "attribute");
    const auto key = [&](const Value& item) {
        const Value found = path == nullptr ? item : path_of(runtime, item, *path);
        runtime.work(found.weight());
        return found.string() != nullptr ? Value(lower(*found.string())) : found;
    };
    std::stable_sort(all.begin(), all.end(), [&](const Value& a, const Value& b) {
        const auto ordered = order(runtime, key(a), key(b));
        if (!ordered) throw Error(fmt::format("'{}' and '{}' have no order", a.type_name(), b.type_name()));
        return *ordered < 0;
    });
    if (backwards != nullptr && backwards->truthy()) std::reverse(all.begin(), all.end());
    return Value::list(std::move(all));
}

Value dictsort(R runtime, V value, A) {
    if (value.entries() == nullptr) throw Error("dictsort needs a dictionary");
    constexpr std::size_t kComparisons = 16;  // of each key, with a copy in small letters
    Entries entries = *value.entries();
    runtime.spend(entries.size() * sizeof(Value));
    runtime.work(value.weight() * kComparisons);
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return lower(a.first) < lower(b.first); });
    List out;
    for (const auto& [key, item] : entries) out.push_back(Value::list({key, item}));
    return Value::list(std::move(out));
}

Value unique(R runtime, V value, A) {
    List out;
    for (const Value& item : elements(runtime, value)) {
        runtime.spend(out.size());
        if (std::none_of(out.begin(), out.end(),
                         [&](const Value& one) { return equal(runtime, one, item); })) {
            out.push_back(item);
        }
    }
    return Value::list(std::move(out));
}

Value indent(R runtime, V value, A arguments) {
    const Value* width = arguments.find(0, "width");
    const Value* first = arguments.find(1, "first");
    const Value* blank = arguments.find(2, "blank");
    const std::int64_t count =
        width != nullptr && width->integer() ? std::clamp<std::int64_t>(*width->integer(), 0, 256) : 4;
    const std::string margin = width != nullptr && width->string() != nullptr
                                   ? *width->string()
                                   : std::string(static_cast<std::size_t>(count), ' ');
    std::string out;
    bool at_first = true;
    for (const std::string& line : split(value.str(), "\n", -1)) {
        runtime.spend(line.size() + margin.size() + 1);
        if (!at_first) out += '\n';
        const bool wanted = at_first ? first != nullptr && first->truthy()
                                     : !line.empty() || (blank != nullptr && blank->truthy());
        if (wanted) out += margin;
        out += line;
        at_first = false;
    }
    return out;
}

Value tojson(R runtime, V value, A arguments) {
    runtime.work(value.weight());
    JsonStyle style;
    const auto set = [&](std::size_t place, const char* name) {
        const Value* given = arguments.find(place, name);
        return given != nullptr && given->truthy();
    };
    style.ensure_ascii = set(0, "ensure_ascii");
    style.sort_keys = set(3, "sort_keys");
    const Value* indent = arguments.find(1, "indent");
    if (indent != nullptr && indent->integer()) {
        style.indent = static_cast<int>(std::clamp<std::int64_t>(*indent->integer(), 0, 64));
        style.item_separator.pop_back();
    }
    const Value* separators = arguments.find(2, "separators");
    if (separators != nullptr && !separators->is_none()) {
        if (separators->items() == nullptr || separators->items()->size() != 2) {
            throw Error("tojson: separators must be two strings");
        }
        style.item_separator = (*separators->items())[0].str();
        style.key_separator = (*separators->items())[1].str();
    }
    return to_json(value, style);
}

// Looking up a key of an object looks through all of them, so that the work grows with the square of their number.
Value from_json(R runtime, V value, A) {
    constexpr std::size_t kMostBytes = std::size_t{1} << 20;
    if (value.string() == nullptr) throw Error("from_json needs a string");
    if (value.string()->size() > kMostBytes)
        throw Error(fmt::format("from_json: more than {} bytes", kMostBytes));
    const auto keys =
        static_cast<std::uint64_t>(std::count(value.string()->begin(), value.string()->end(), ':'));
    runtime.spend(value.string()->size() * sizeof(Value));
    runtime.work(keys * keys * 4);
    const auto json = nlohmann::ordered_json::parse(*value.string(), nullptr, false);
    if (json.is_discarded()) throw Error("from_json: not JSON");
    return Value::from_json(json);
}

Value to_int(R, V value, A arguments) {
    if (const auto whole = value.integer()) return *whole;
    if (const auto real = value.number(); real && std::fabs(*real) < 9e18)
        return static_cast<std::int64_t>(*real);
    if (value.string() != nullptr) {
        const std::string text(strip_left(strip_right(*value.string())));
        char* end = nullptr;
        const std::int64_t number = std::strtoll(text.c_str(), &end, 10);
        if (!text.empty() && *end == '\0') return number;
    }
    const Value* otherwise = arguments.find(0, "default");
    return otherwise != nullptr ? *otherwise : Value(std::int64_t{0});
}

Value to_float(R, V value, A arguments) {
    if (const auto real = value.number()) return *real;
    if (value.string() != nullptr) {
        const std::string text(strip_left(strip_right(*value.string())));
        char* end = nullptr;
        const double number = std::strtod(text.c_str(), &end);
        if (!text.empty() && *end == '\0') return number;
    }
    const Value* otherwise = arguments.find(0, "default");
    return otherwise != nullptr ? *otherwise : Value(0.0);
}

Value replace(R runtime, V value, A arguments) {
    Arguments named{{text_of(arguments, 0, "old", ""), text_of(arguments, 1, "new", "")}, {}};
    if (const Value* count = arguments.find(2, "count")) named.positional.push_back(*count);
    return call_method(runtime, Value(value.str()), "replace", named);
}

Value escape(R runtime, V value, A) {
    Value text = value.str();
    const std::pair<const char*, const char*> kEntities[] = {
        {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
    for (const auto& [from, to] : kEntities) text = call_method(runtime, text, "replace", {{from, to}, {}});
    return text;
}

Value extreme(R runtime, V value, int sign) {
    Value best = Value::Undefined{"no element of an empty sequence"};
    for (const Value& item : elements(runtime, value)) {
        const auto ordered = best.is_undefined() ? std::optional(sign) : order(runtime, item, best);
        if (!ordered)
            throw Error(fmt::format("'{}' and '{}' have no order", item.type_name(), best.type_name()));
        if (*ordered * sign > 0) best = item;
    }
    return best;
}

Value end_of(R runtime, V value, bool last) {
    const List all = elements(runtime, value);
    if (all.empty()) return Value::Undefined{"no element of an empty sequence"};
    return last ? all.back() : all.front();
}

Value otherwise(R, V value, A arguments) {
    const Value* replacement = arguments.find(0, "default_value");
    const Value* empty_too = arguments.find(1, "boolean");
    const bool missing =
        value.is_undefined() || (empty_too != nullptr && empty_too->truthy() && !value.truthy());
    return !missing ? value : replacement != nullptr ? *replacement : Value("");
}

Value sum(R runtime, V value, A) {
    double total = 0;
    bool whole = true;
    for (const Value& item : elements(runtime, value)) {
        if (!item.number()) throw Error(fmt::format("a '{}' cannot be summed", item.type_name()));
        whole = whole && item.integer().has_value();
        total += *item.number();
    }
    return whole && std::fabs(total) < 9e15 ? Value(static_cast<std::int64_t>(total)) : Value(total);
}

const std::map<std::string, Filter>& filters() {
    static const std::map<std::string, Filter> kFilters = {
        {"trim", [](R r, V v, A a) { return call_method(r, Value(v.str()), "strip", a); }},
        {"length", [](R r, V v, A) -> Value { return static_cast<std::int64_t>(length(r, v)); }},
        {"count", [](R r, V v, A) -> Value { return static_cast<std::int64_t>(length(r, v)); }},
        {"lower", [](R, V v, A) -> Value { return lower(v.str()); }},
        {"upper", [](R, V v, A) -> Value { return upper(v.str()); }},
        {"capitalize", [](R, V v, A) -> Value { return capitalize(v.str()); }},
        {"title", [](R, V v, A) -> Value { return title(v.str()); }},
        {"string", [](R, V v, A) -> Value { return v.str(); }},
        {"safe", [](R, V v, A) -> Value { return v; }},
        {"list", [](R r, V v, A) { return Value::list(elements(r, v)); }},
        {"first", [](R r, V v, A) { return end_of(r, v, false); }},
        {"last", [](R r, V v, A) { return end_of(r, v, true); }},
        {"items",
         [](R r, V v, A a) {
             return v.is_undefined() ? Value::list({})
                    : v.space() == nullptr && v.entries() != nullptr
                        ? call_method(r, v, "items", a)
                        : throw Error("items needs a dictionary");
         }},
        {"select", [](R r, V v, A a) { return choose(r, v, a, false, true); }},
        {"reject", [](R r, V v, A a) { return choose(r, v, a, false, false); }},
        {"selectattr", [](R r, V v, A a) { return choose(r, v, a, true, true); }},
        {"rejectattr", [](R r, V v, A a) { return choose(r, v, a, true, false); }},
        {"abs",
         [](R, V v, A) -> Value {
             if (const auto whole = v.integer()) return *whole < 0 ? -*whole : *whole;
             if (!v.number()) throw Error("abs needs a number");
             return std::fabs(*v.number());
         }},
        {"min", [](R r, V v, A) { return extreme(r, v, -1); }},
        {"max", [](R r, V v, A) { return extreme(r, v, 1); }},
        {"map", map},
        {"join", join},
        {"reverse", reverse},
        {"sort", sort},
        {"dictsort", dictsort},
        {"unique", unique},
        {"indent", indent},
        {"tojson", tojson},
        {"from_json", from_json},
        {"int", to_int},
        {"float", to_float},
        {"replace", replace},
        {"escape", escape},
        {"e", escape},
        {"default", otherwise},
        {"d", otherwise},
        {"sum", sum},
    };
    return kFilters;
}

}  // namespace

bool is_filter(const std::string& name) {
    return filters().count(name) > 0;
}

Value apply_filter(Runtime& runtime, const std::string& name, const Value& subject,
                   const Arguments& arguments) {
    const auto found = filters().find(name);
    if (found == filters().end()) throw Error("no filter named '" + name + "'");
    const Runtime::Level level(runtime);
    runtime.step(runtime.line());
    if (subject.string() != nullptr) runtime.work(subject.string()->size());
    const Value result = found->second(runtime, subject, arguments);
    runtime.spend(sizeof(Value) + (result.string() != nullptr ? result.string()->size() : 0));
    return result;
}

}  // namespace tandem::tokenizer::jinja
