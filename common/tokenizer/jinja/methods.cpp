// Methods of strings, lists and dictionaries. Those that change a value are absent, as in jinja2's immutable
// sandbox.
#include <algorithm>
#include <map>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

using StringMethod = Value (*)(const std::string&, const Arguments&);

const std::string& text_argument(const Arguments& arguments, std::size_t place, const char* name) {
    const Value* value = arguments.find(place, name);
    if (value == nullptr || value->string() == nullptr) {
        throw Error(fmt::format("argument {} must be a string", name));
    }
    return *value->string();
}

std::int64_t integer_argument(const Arguments& arguments, std::size_t place, const char* name,
                              std::int64_t otherwise) {
    const Value* value = arguments.find(place, name);
    if (value == nullptr) return otherwise;
    if (!value->integer()) throw Error(fmt::format("argument {} must be an integer", name));
    return *value->integer();
}

std::optional<std::string_view> set_argument(const Arguments& arguments) {
    const Value* value = arguments.find(0, "chars");
    if (value == nullptr || value->is_none()) return std::nullopt;
    return text_argument(arguments, 0, "chars");
}

// A string, or a list of which one will do.
bool any_affix(const Arguments& arguments, const std::function<bool(const std::string&)>& fits) {
    const Value* value = arguments.find(0, "prefix");
    if (value != nullptr && value->items() != nullptr) {
        return std::any_of(value->items()->begin(), value->items()->end(),
                           [&](const Value& one) { return one.string() != nullptr && fits(*one.string()); });
    }
    return fits(text_argument(arguments, 0, "prefix"));
}

Value strings(const std::vector<std::string>& parts) {
    return Value::list(List(parts.begin(), parts.end()));
}

std::optional<std::string_view> separator(const Arguments& arguments) {
    const Value* value = arguments.find(0, "sep");
    if (value == nullptr || value->is_none()) return std::nullopt;
    const std::string& text = text_argument(arguments, 0, "sep");
    if (text.empty()) throw Error("empty separator");
    return text;
}

Value rsplit(const std::string& text, const Arguments& arguments) {
    const std::int64_t most = integer_argument(arguments, 1, "maxsplit", -1);
    std::vector<std::string> parts = split(text, separator(arguments), -1);
    if (most < 0 || static_cast<std::int64_t>(parts.size()) <= most + 1) return strings(parts);
    if (!separator(arguments)) throw Error("rsplit with maxsplit needs a separator here");
    const auto kept = static_cast<std::ptrdiff_t>(parts.size()) - static_cast<std::ptrdiff_t>(most);
    std::string head;
    for (auto part = parts.begin(); part != parts.begin() + kept; ++part) {
        if (part != parts.begin()) head += *separator(arguments);
        head += *part;
    }
    parts.erase(parts.begin(), parts.begin() + kept);
    parts.insert(parts.begin(), head);
    return strings(parts);
}

std::int64_t place_in_characters(const std::string& text, std::size_t at) {
    if (at == std::string::npos) return -1;
    return static_cast<std::int64_t>(count_characters(std::string_view(text).substr(0, at)));
}

bool all_characters(const std::string& text, bool (*wanted)(std::string_view)) {
    const auto all = characters(text);
    return !all.empty() && std::all_of(all.begin(), all.end(), wanted);
}

// "{} {0} {name}".format(…), without format specifications.
Value format(const std::string& text, const Arguments& arguments) {
    std::string out;
    std::size_t next = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool twice = (c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c;
        if (c == '}' && !twice) throw Error("single '}' in a format");
        if (c == '{' && !twice) {
            const std::size_t close = text.find('}', i);
            if (close == std::string::npos) throw Error("single '{' in a format");
            const std::string field = text.substr(i + 1, close - i - 1);
            const bool number = !field.empty() && field.size() < 4 &&
                                field.find_first_not_of("0123456789") == std::string::npos;
            const Value* value = field.empty() ? arguments.find(next++, "")
                                 : number      ? arguments.find(std::stoul(field), "")
                                               : arguments.find(SIZE_MAX, field);
            if (value == nullptr) throw Error("a format names {" + field + "}, which is not given");
            out += value->str();
            if (out.size() > Value::kHeaviest) throw Error("a value grows too large");
            i = close;
            continue;
        }
        out += c;
        i += twice ? 1 : 0;
    }
    return out;
}

Value splitlines(const std::string& text, const Arguments&) {
    std::string plain = replace_all(replace_all(text, "\r\n", "\n", -1), "\r", "\n", -1);
    if (plain.ends_with('\n')) plain.pop_back();
    return text.empty() ? Value::list({}) : strings(split(plain, "\n", -1));
}

const std::map<std::string, StringMethod>& string_methods() {
    using S = const std::string&;
    using A = const Arguments&;
    static const std::map<std::string, StringMethod> kMethods = {
        {"strip",
         [](S s, A a) -> Value {
             return std::string(strip_left(strip_right(s, set_argument(a)), set_argument(a)));
         }},
        {"lstrip", [](S s, A a) -> Value { return std::string(strip_left(s, set_argument(a))); }},
        {"rstrip", [](S s, A a) -> Value { return std::string(strip_right(s, set_argument(a))); }},
        {"lower", [](S s, A) -> Value { return lower(s); }},
        {"upper", [](S s, A) -> Value { return upper(s); }},
        {"capitalize", [](S s, A) -> Value { return capitalize(s); }},
        {"title", [](S s, A) -> Value { return title(s); }},
        {"startswith",
         [](S s, A a) -> Value { return any_affix(a, [&](S affix) { return s.starts_with(affix); }); }},
        {"endswith",
         [](S s, A a) -> Value { return any_affix(a, [&](S affix) { return s.ends_with(affix); }); }},
        {"removeprefix",
         [](S s, A a) -> Value {
             S affix = text_argument(a, 0, "prefix");
             return s.starts_with(affix) ? s.substr(affix.size()) : s;
         }},
        {"removesuffix",
         [](S s, A a) -> Value {
             S affix = text_argument(a, 0, "suffix");
             return s.ends_with(affix) ? s.substr(0, s.size() - affix.size()) : s;
         }},
        {"split",
         [](S s, A a) -> Value {
             return strings(split(s, separator(a), integer_argument(a, 1, "maxsplit", -1)));
         }},
        {"rsplit", rsplit},
        {"format", format},
        {"splitlines", splitlines},
        {"replace",
         [](S s, A a) -> Value {
             return replace_all(s, text_argument(a, 0, "old"), text_argument(a, 1, "new"),
                                integer_argument(a, 2, "count", -1));
         }},
        {"find",
         [](S s, A a) -> Value { return place_in_characters(s, s.find(text_argument(a, 0, "sub"))); }},
        {"index",
         [](S s, A a) -> Value {
             const std::size_t at = s.find(text_argument(a, 0, "sub"));
             if (at == std::string::npos) throw Error("substring not found");
             return place_in_characters(s, at);
         }},
        {"rfind",
         [](S s, A a) -> Value { return place_in_characters(s, s.rfind(text_argument(a, 0, "sub"))); }},
        {"count",
         [](S s, A a) -> Value {
             S sub = text_argument(a, 0, "sub");
             if (sub.empty()) return static_cast<std::int64_t>(count_characters(s) + 1);
             return static_cast<std::int64_t>(split(s, sub, -1).size() - 1);
         }},
        {"isdigit",
         [](S s, A) -> Value {
             return all_characters(
                 s, [](std::string_view c) { return c.size() == 1 && c[0] >= '0' && c[0] <= '9'; });
         }},
        {"isspace",
         [](S s, A) -> Value {
             return all_characters(s, [](std::string_view c) { return strip_left(c).empty(); });
         }},
        {"isupper", [](S s, A) -> Value { return upper(s) == s && lower(s) != s; }},
        {"islower", [](S s, A) -> Value { return lower(s) == s && upper(s) != s; }},
    };
    return kMethods;
}

Value call_dict(Runtime& runtime, const Value& dict, const std::string& name, const Arguments& arguments) {
    const Entries& entries = *dict.entries();
    runtime.spend(entries.size() * sizeof(Value));
    if (name == "get") {
        const Value* key = arguments.find(0, "key");
        const Value* otherwise = arguments.find(1, "default");
        const Value* found = key != nullptr && key->string() != nullptr ? dict.find(*key->string()) : nullptr;
        return found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value(Value::None{});
    }
    List out;
    for (const auto& [key, value] : entries) {
        out.push_back(name == "keys" ? Value(key) : name == "values" ? value : Value::list({key, value}));
    }
    return Value::list(std::move(out));
}

Value call_list(Runtime& runtime, const Value& list, const std::string& name, const Arguments& arguments) {
    const Value* item = arguments.find(0, "value");
    if (item == nullptr) throw Error(name + "() needs an argument");
    std::int64_t count = 0;
    for (std::size_t i = 0; i < list.items()->size(); ++i) {
        if (!equal(runtime, (*list.items())[i], *item)) continue;
        if (name == "index") return static_cast<std::int64_t>(i);
        ++count;
    }
    if (name == "index") throw Error(item->repr() + " is not in list");
    return count;
}

bool is_plain_dict(const Value& value) {
    return value.space() == nullptr && value.entries() != nullptr;
}

}  // namespace

bool has_method(const Value& object, const std::string& name) {
    if (object.string() != nullptr) return name == "join" || string_methods().count(name) > 0;
    if (object.items() != nullptr) return name == "index" || name == "count";
    if (is_plain_dict(object)) return name == "items" || name == "keys" || name == "values" || name == "get";
    return false;
}

Value call_method(Runtime& runtime, const Value& object, const std::string& name,
                  const Arguments& arguments) {
    if (is_plain_dict(object)) return call_dict(runtime, object, name, arguments);
    if (object.items() != nullptr) return call_list(runtime, object, name, arguments);
    if (name == "join") {
        const Value* parts = arguments.find(0, "iterable");
        if (parts == nullptr) throw Error("join() needs an argument");
        std::string out;
        bool first = true;
        for (const Value& part : elements(runtime, *parts)) {
            if (part.string() == nullptr) throw Error("join() needs strings");
            runtime.spend(object.string()->size() + part.string()->size());
            if (!first) out += *object.string();
            first = false;
            out += *part.string();
        }
        return out;
    }
    if (name == "replace") {  // may grow: counted beforehand
        const std::string& from = text_argument(arguments, 0, "old");
        const std::size_t places =
            from.empty() ? object.string()->size() + 1 : split(*object.string(), from, -1).size();
        if (places > Value::kHeaviest / (text_argument(arguments, 1, "new").size() + 1)) {
            throw Error("a value grows too large");
        }
    }
    std::size_t longest = 0;  // of what may be looked for
    for (const Value& argument : arguments.positional) {
        if (argument.string() != nullptr) longest = std::max(longest, argument.string()->size());
        if (argument.items() != nullptr) runtime.work(argument.weight());
    }
    runtime.work(search_work(*object.string(), longest));
    const Value result = string_methods().at(name)(*object.string(), arguments);
    const std::size_t parts = result.items() != nullptr ? result.items()->size() : 0;
    runtime.spend(object.string()->size() + parts * sizeof(Value) +
                  (result.string() != nullptr ? result.string()->size() : 0));
    return result;
}

}  // namespace tandem::tokenizer::jinja
