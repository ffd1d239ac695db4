// value | filter: which there are, and those of any value.
#include "common/error.h"
#include "common/tokenizer/jinja/bound.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/getter.h"
#include "common/tokenizer/jinja/json_reader.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

using R = Runtime&;
using V = const Value&;
using A = const Arguments&;

Value tojson(R runtime, V value, A arguments) {
    const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    std::string blanks;
    List parts;
    style.ensure_ascii = bound.flag(0, false);
    style.sort_keys = bound.flag(3, false);
    if (!bound.is_none(1)) {
        constexpr Integer kWidest = 1024;
        const bool text = bound[1]->string() != nullptr;
        const Integer width = text ? 0 : bound.integer(1, 0);
        if (width > kWidest) throw Error("tojson: the indent is too wide");
        blanks.assign(static_cast<std::size_t>(width < 0 ? 0 : width), ' ');
        style.indent = text ? *bound[1]->string() : blanks;
        style.item_separator = ",";
    }
    if (!bound.is_none(2)) {
        parts = elements(runtime, *bound[2]);
        if (parts.size() != 2 || parts[0].string() == nullptr || parts[1].string() == nullptr) {
            throw Error("tojson: separators must be two strings");
        }
        style.item_separator = *parts[0].string();
        style.key_separator = *parts[1].string();
    }
    return to_json(runtime, value, style);
}

// None of jinja2's: templates for other programs use it.
Value from_json(R runtime, V value, A arguments) {
    const Bound bound("from_json", arguments, {});
    constexpr std::size_t kMostBytes = std::size_t{1} << 20;
    if (value.string() == nullptr) throw Error("from_json needs a string");
    if (value.string()->size() > kMostBytes)
        throw Error(fmt::format("from_json: more than {} bytes", kMostBytes));
    try {
        return read_json(runtime, *value.string());
    } catch (const BadInput& error) {
        throw Error(std::string("from_json: ") + error.what());
    }
}

Value default_filter(R, V value, A arguments) {
    const Bound bound("default", arguments, {"default_value", "boolean"});
    const bool missing = value.is_undefined() || (bound.flag(1, false) && !value.truthy());
    return !missing ? value : bound.given(0) ? *bound[0] : Value("");
}

Value attr(R runtime, V value, A arguments) {
    const Bound bound("attr", arguments, {"name"}, 1);
    const std::string& name = bound.string(0);
    if (value.is_undefined()) throw Error(*value.get<Value::Undefined>()->what);
    if (value.dict() != nullptr && !has_method(value, name)) {
        return undefined(runtime, "'dict object' has no attribute '" + shown(name) + "'");
    }
    return attribute(runtime, value, name);
}

// As it is printed on one line; what Python would break into several is refused.
Value pprint(R runtime, V value, A arguments) {
    const Bound bound("pprint", arguments, {});
    constexpr std::size_t kWidth = 80;
    std::string text;
    if (value.dict() != nullptr) {
        Dict by_key;
        List keys;
        runtime.spend(value.dict()->size() * 2 * sizeof(Value));
        for (const auto& [key, unused] : value.dict()->pairs()) keys.push_back(key);
        for (const Value& key : sorted(runtime, keys, [](const Value& one) { return one; })) {
            by_key.put(runtime, key, *value.dict()->find(runtime, key));
        }
        text = repr(runtime, Value::dict(runtime, std::move(by_key)));
    } else {
        text = repr(runtime, value);
    }
    const bool nested = value.items() != nullptr && text.find('{') != std::string::npos;
    if (count_characters(text) > kWidth || nested ||
        (value.dict() != nullptr && text.find('{', 1) != std::string::npos)) {
        throw Error("pprint of what needs several lines, or holds dictionaries, is not supported");
    }
    return text;
}

Value refused(const char* name) {
    throw Error(fmt::format("filter '{}' is not supported", name));
}

Filters all_filters() {
    Filters all = {
        {"tojson", tojson},
        {"from_json", from_json},
        {"default", default_filter},
        {"d", default_filter},
        {"attr", attr},
        {"pprint", pprint},
        {"random", [](R, V, A) { return refused("random"); }},
        {"urlize", [](R, V, A) { return refused("urlize"); }},
        {"length",
         [](R r, V v, A a) -> Value {
             const Bound none("length", a, {});
             return length(r, v);
         }},
        {"list",
         [](R r, V v, A a) {
             const Bound none("list", a, {});
             return Value::list(r, elements(r, v));
         }},
    };
    all["count"] = all["length"];
    for (Filters more : {text_filters(), number_filters(), sequence_filters(), lazy_filters()})
        all.merge(more);
    return all;
}

const Filters& filters() {
    static const Filters kFilters = all_filters();
    return kFilters;
}

}  // namespace

bool is_filter(const std::string& name) {
    return filters().count(name) > 0;
}

Value apply_filter(Runtime& runtime, const std::string& name, const Value& subject,
                   const Arguments& arguments) {
    const auto found = filters().find(name);
    if (found == filters().end()) throw Error("no filter named '" + shown(name) + "'");
    const Runtime::Level level(runtime);
    runtime.step(runtime.line());
    if (subject.string() != nullptr) runtime.work(subject.string()->size());
    Value result = found->second(runtime, subject, arguments);
    runtime.spend(sizeof(Value));
    return result;
}

}  // namespace tandem::tokenizer::jinja
