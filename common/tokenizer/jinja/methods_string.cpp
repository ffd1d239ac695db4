// Methods of strings, as Python's str has them. A safe string's give safe strings.
#include <algorithm>
#include <map>

#include "common/error.h"
#include "common/tokenizer/jinja/bound.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/items.h"
#include "common/tokenizer/jinja/search.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

struct Given {
    Runtime& runtime;
    const Value& value;
    const std::string& text;
    const Arguments& arguments;
    const char* name;
    bool markup;
};
using StringMethod = Value (*)(const Given&);

Bound bound_of(const Given& given, std::initializer_list<const char*> names, std::size_t required = 0) {
    return {given.name, given.arguments, names, required};
}

// A text that a method puts in: escaped where the receiver is safe.
Value put_in(const Given& given, const Value& value) {
    if (value.string() == nullptr) {
        throw Error(fmt::format("{}() needs strings, found '{}'", given.name, value.type_name()));
    }
    return given.markup ? Value(escape_html(given.runtime, value)) : value;
}

std::optional<std::string_view> characters_of(const Bound& bound) {
    return bound.is_none(0) ? std::nullopt : std::optional<std::string_view>(bound.string(0));
}

// A part of the receiver's text; all of it is the receiver.
Value part_of_receiver(const Given& given, std::string_view part) {
    if (part.size() == given.text.size()) return given.value;
    Text out(given.runtime);
    out += part;
    return out.take();
}

// Some characters, sorted.
class Characters {
  public:
    Characters(Runtime& runtime, std::string_view text) : runtime_(runtime) {
        runtime.spend(2 * sizeof(char32_t) * text.size());
        for (std::size_t at = 0; at < text.size();) all_.push_back(next_code_point(text, at));
        std::sort(all_.begin(), all_.end());
    }
    bool has(char32_t one) const {
        runtime_.work(kOfOne);
        return std::binary_search(all_.begin(), all_.end(), one);
    }

  private:
    static constexpr std::size_t kOfOne = 16;
    Runtime& runtime_;
    std::vector<char32_t> all_;
};

std::string_view without_left(std::string_view text, const Characters& of) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        if (!of.has(next_code_point(text, at))) return text.substr(begin);
    }
    return {};
}

std::string_view without_right(std::string_view text, const Characters& of) {
    for (std::size_t at = text.size(); at > 0;) {
        const std::size_t end = at;
        if (!of.has(previous_code_point(text, at))) return text.substr(0, end);
    }
    return {};
}

Value string_strip(const Given& given, bool left, bool right) {
    const Bound bound = bound_of(given, {"/chars"});
    std::string_view text = given.text;
    if (const auto characters = characters_of(bound)) {
        const Characters of(given.runtime, *characters);
        if (left) text = without_left(text, of);
        if (right) text = without_right(text, of);
    } else {
        if (left) text = strip_left(text);
        if (right) text = strip_right(text);
    }
    return part_of_receiver(given, text);
}

// Start and stop, in characters, as bytes of the text; nullopt: the start is behind the end.
std::optional<std::string_view> given_part(const Given& given, const Bound& bound, std::size_t& begin) {
    const auto count = static_cast<std::int64_t>(count_characters(given.text));
    const auto place = [&](std::size_t i, std::int64_t otherwise) {
        const std::int64_t at = bound.is_none(i) ? otherwise : bound.count(i, otherwise);
        return at < 0 ? std::max<std::int64_t>(at + count, 0) : at;
    };
    const std::int64_t start = place(1, 0), stop = std::min(place(2, count), count);
    begin = bytes_of(given.text, static_cast<std::size_t>(start));
    if (start > stop) return std::nullopt;
    const std::string_view rest = std::string_view(given.text).substr(begin);
    return rest.substr(0, bytes_of(rest, static_cast<std::size_t>(stop - start)));
}

// A string, or a tuple of which one will do.
Value affix(const Given& given, bool (*fits)(std::string_view, std::string_view)) {
    const Bound bound = bound_of(given, {"/prefix", "/start", "/end"}, 1);
    std::size_t begin = 0;
    const auto text = given_part(given, bound, begin);
    const List wanted = bound[0]->is_tuple() ? *bound[0]->items() : List{*bound[0]};
    for (const Value& one : wanted) {
        if (one.string() == nullptr)
            throw Error(fmt::format("{}() needs a string or a tuple of them", given.name));
        given.runtime.work(one.string()->size());
        if (text && fits(*text, *one.string())) return true;
    }
    return false;
}

Value string_find(const Given& given, bool from_right, bool must) {
    const Bound bound = bound_of(given, {"/sub", "/start", "/end"}, 1);
    std::size_t begin = 0;
    const auto text = given_part(given, bound, begin);
    const std::string& wanted = bound.string(0);
    const std::size_t at = !text        ? std::string::npos
                           : from_right ? find_last(given.runtime, *text, wanted)
                                        : find_first(given.runtime, *text, wanted);
    if (at != std::string::npos) return count_characters(std::string_view(given.text).substr(0, begin + at));
    if (must) throw Error("substring not found");
    return -1;
}

std::size_t count_of(Runtime& runtime, std::string_view text, std::string_view wanted) {
    if (wanted.empty()) return count_characters(text) + 1;
    std::size_t count = 0;
    for (std::size_t at = 0; (at = find_first(runtime, text, wanted, at)) != std::string_view::npos;
         at += wanted.size()) {
        ++count;
    }
    return count;
}

Value string_count(const Given& given) {
    const Bound bound = bound_of(given, {"/sub", "/start", "/end"}, 1);
    std::size_t begin = 0;
    const auto text = given_part(given, bound, begin);
    const std::string& wanted = bound.string(0);
    return text ? count_of(given.runtime, *text, wanted) : 0;
}

Value string_replace(const Given& given) {
    const Bound bound = bound_of(given, {"/old", "/new", "count"}, 2);
    const std::string& from = bound.string(0);
    const Value put = put_in(given, *bound[1]);
    const std::string& to = *put.string();
    std::int64_t most = bound.count(2, -1);
    Text out(given.runtime);
    std::string_view text = given.text;
    if (from.empty()) {  // between all characters
        for (; most != 0; --most) {
            out += to;
            if (text.empty()) break;
            const std::size_t one = next_character(text, 0);
            out += text.substr(0, one);
            text.remove_prefix(one);
        }
        out += text;
        return out.take();
    }
    for (; most != 0; --most) {
        const std::size_t found = find_first(given.runtime, text, from);
        if (found == std::string_view::npos) break;
        out += text.substr(0, found);
        out += to;
        text.remove_prefix(found + from.size());
    }
    out += text;
    return out.take();
}

Value string_like(const Given& given, std::string_view text) {
    given.runtime.spend(Value::kOfString + text.size());
    return given.markup ? Value::markup(std::string(text)) : Value(std::string(text));
}

Value split_up(const Given& given, bool from_right) {
    const Bound bound = bound_of(given, {"sep", "maxsplit"});
    const auto separator = characters_of(bound);
    if (separator && separator->empty()) throw Error("empty separator");
    Items parts(given.runtime);
    const auto add = [&](std::string_view piece) { parts.add(string_like(given, piece)); };
    if (!from_right) {
        split(given.runtime, given.text, separator, bound.count(1, -1), add);
        return parts.list();
    }
    split_right(given.runtime, given.text, separator, bound.count(1, -1), add);
    List all = parts.take();
    std::reverse(all.begin(), all.end());
    return Value::list(given.runtime, std::move(all));
}

Value string_lines(const Given& given) {
    const Bound bound = bound_of(given, {"keepends"});
    Items parts(given.runtime);
    split_lines(given.text, bound.integer(0, 0) != 0,
                [&](std::string_view line) { parts.add(string_like(given, line)); });
    return parts.list();
}

Value partition(const Given& given, bool from_right) {
    const Bound bound = bound_of(given, {"/sep"}, 1);
    const std::string& separator = bound.string(0);
    if (separator.empty()) throw Error("empty separator");
    const std::size_t at = from_right ? find_last(given.runtime, given.text, separator)
                                      : find_first(given.runtime, given.text, separator);
    std::string_view parts[3] = {given.text, "", ""};
    if (at == std::string::npos && from_right) std::swap(parts[0], parts[2]);
    if (at != std::string::npos) {
        parts[0] = std::string_view(given.text).substr(0, at);
        parts[1] = separator;
        parts[2] = std::string_view(given.text).substr(at + separator.size());
    }
    return Value::tuple(given.runtime, {string_like(given, parts[0]), string_like(given, parts[1]),
                                        string_like(given, parts[2])});
}

Value string_join(const Given& given) {
    const Bound bound = bound_of(given, {"/iterable"}, 1);
    const IteratorPtr from = iterate(given.runtime, *bound[0]);
    Text out(given.runtime);
    bool first = true;
    while (const auto item = from->next(given.runtime)) {
        if (!first) out += given.text;
        first = false;
        out += given.markup ? escape_html(given.runtime, *item) : *put_in(given, *item).string();
    }
    return out.take();
}

// To a width: -1 the text stays left, 1 right, 0 in the middle.
Value justify(const Given& given, int side) {
    const Bound bound = bound_of(given, {"/width", "/fillchar"}, 1);
    const Value put = bound.given(1) ? put_in(given, *bound[1]) : Value(" ");
    const std::string& filler = *put.string();
    if (count_characters(filler) != 1) throw Error("the fill character must be exactly one character long");
    const Integer wide = bound.integer(0, 0),
                  missing = wide - static_cast<Integer>(count_characters(given.text));
    const Integer left = missing <= 0 || side < 0 ? 0
                         : side > 0               ? missing
                                                  : missing / 2 + (missing & wide & 1);
    Text out(given.runtime);
    const auto cut = [](Integer n) { return static_cast<std::size_t>(std::clamp<Integer>(n, 0, INT64_MAX)); };
    out.fill(cut(left), filler);
    out += given.text;
    out.fill(cut(missing - left), filler);
    return out.take();
}

Value zero_fill(const Given& given) {
    const Bound bound = bound_of(given, {"/width"}, 1);
    const Integer missing = bound.integer(0, 0) - static_cast<Integer>(count_characters(given.text));
    const std::size_t sign = given.text.starts_with('-') || given.text.starts_with('+') ? 1 : 0;
    Text out(given.runtime);
    out += std::string_view(given.text).substr(0, sign);
    out.fill(static_cast<std::size_t>(std::clamp<Integer>(missing, 0, INT64_MAX)), "0");
    out += std::string_view(given.text).substr(sign);
    return out.take();
}

Value expand_tabs(const Given& given) {
    const Bound bound = bound_of(given, {"tabsize"});
    const Integer size = std::min<Integer>(bound.integer(0, 8), INT32_MAX);
    Text out(given.runtime);
    Integer column = 0;
    for (std::size_t at = 0; at < given.text.size();) {
        const std::size_t begin = at;
        at = next_character(given.text, at);
        const std::string_view one = std::string_view(given.text).substr(begin, at - begin);
        if (one == "\t") {
            const Integer blanks = size <= 0 ? 0 : size - column % size;
            out.fill(static_cast<std::size_t>(blanks), " ");
            column += blanks;
        } else {
            out += one;
            column = one == "\n" || one == "\r" ? 0 : column + 1;
        }
    }
    return out.take();
}

Value remove_affix(const Given& given, bool prefix) {
    const Bound bound = bound_of(given, {"/affix"}, 1);
    const std::string& wanted = bound.string(0);
    std::string_view text = given.text;
    if (prefix && text.starts_with(wanted)) text.remove_prefix(wanted.size());
    if (!prefix && text.ends_with(wanted)) text.remove_suffix(wanted.size());
    return part_of_receiver(given, text);
}

// The entities that chat templates meet; others are refused.
std::string unescaped(Runtime& runtime, std::string_view text) {
    Text out(runtime);
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] != '&') {
            out += text[at];
            continue;
        }
        const std::pair<std::string_view, std::string_view> kEntities[] = {
            {"&amp;", "&"},  {"&lt;", "<"},  {"&gt;", ">"},       {"&quot;", "\""},
            {"&#34;", "\""}, {"&#39;", "'"}, {"&nbsp;", "\u00A0"}};
        const auto found = std::find_if(std::begin(kEntities), std::end(kEntities), [&](const auto& one) {
            return text.substr(at).starts_with(one.first);
        });
        if (found != std::end(kEntities)) {
            out += found->second;
            at += found->first.size() - 1;
        } else if (at + 1 < text.size() && (text[at + 1] == '#' || (text[at + 1] | 0x20) >= 'a')) {
            throw Error("the entity in '" + std::string(text.substr(at, 12)) + "' is not supported");
        } else {
            out += '&';
        }
    }
    return out.take();
}

Value strip_tags(const Given& given) {
    const Bound bound = bound_of(given, {});
    Text kept(given.runtime), joined(given.runtime);
    std::string_view text = given.text;
    for (std::size_t begin; (begin = text.find('<')) != std::string_view::npos;) {
        const bool comment = text.substr(begin).starts_with("<!--");
        const std::size_t end = comment ? text.find("-->", begin + 4) : text.find('>', begin);
        if (end == std::string_view::npos) break;
        kept += text.substr(0, begin);
        text.remove_prefix(end + (comment ? 3 : 1));
    }
    kept += text;
    split(given.runtime, kept.take(), std::nullopt, -1, [&](std::string_view word) {
        if (joined.size() > 0) joined += ' ';
        joined += word;
    });
    return unescaped(given.runtime, joined.take());
}

template <std::string (*Change)(Runtime&, std::string_view)>
Value cased(const Given& given) {
    const Bound bound = bound_of(given, {});
    return Change(given.runtime, given.text);
}
template <bool (*Holds)(Runtime&, std::string_view)>
Value asked(const Given& given) {
    const Bound bound = bound_of(given, {});
    return Holds(given.runtime, given.text);
}
// What looks at characters without a word about what that takes.
template <bool (*Holds)(std::string_view)>
Value looked_at(const Given& given) {
    const Bound bound = bound_of(given, {});
    given.runtime.case_work(given.text.size());
    return Holds(given.text);
}
template <CharacterClass kWanted>
Value all_of_class(const Given& given) {
    const Bound bound = bound_of(given, {});
    return is_all(given.runtime, given.text, kWanted);
}

bool is_blank_text(std::string_view text) {
    return !text.empty() && strip_left(text).empty();
}
bool is_ascii_text(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}
bool all_printable(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        if (!is_printable(next_code_point(text, at))) return false;
    }
    return true;
}

const std::map<std::string, StringMethod>& string_methods() {
    using G = const Given&;
    static const std::map<std::string, StringMethod> kMethods = {
        {"strip", [](G g) { return string_strip(g, true, true); }},
        {"lstrip", [](G g) { return string_strip(g, true, false); }},
        {"rstrip", [](G g) { return string_strip(g, false, true); }},
        {"lower", cased<lower>},
        {"upper", cased<upper>},
        {"casefold", cased<casefold>},
        {"swapcase", cased<swapcase>},
        {"capitalize", cased<capitalize>},
        {"title", cased<title>},
        {"startswith",
         [](G g) {
             return affix(g, [](std::string_view s, std::string_view a) { return s.starts_with(a); });
         }},
        {"endswith",
         [](G g) { return affix(g, [](std::string_view s, std::string_view a) { return s.ends_with(a); }); }},
        {"removeprefix", [](G g) { return remove_affix(g, true); }},
        {"removesuffix", [](G g) { return remove_affix(g, false); }},
        {"split", [](G g) { return split_up(g, false); }},
        {"rsplit", [](G g) { return split_up(g, true); }},
        {"splitlines", string_lines},
        {"partition", [](G g) { return partition(g, false); }},
        {"rpartition", [](G g) { return partition(g, true); }},
        {"join", string_join},
        {"replace", string_replace},
        {"find", [](G g) { return string_find(g, false, false); }},
        {"rfind", [](G g) { return string_find(g, true, false); }},
        {"index", [](G g) { return string_find(g, false, true); }},
        {"rindex", [](G g) { return string_find(g, true, true); }},
        {"count", string_count},
        {"ljust", [](G g) { return justify(g, -1); }},
        {"rjust", [](G g) { return justify(g, 1); }},
        {"center", [](G g) { return justify(g, 0); }},
        {"zfill", zero_fill},
        {"expandtabs", expand_tabs},
        {"format",
         [](G g) -> Value {
             if (g.markup) throw Error("format of a safe string is not supported");
             return brace_format(g.runtime, g.text, g.arguments);
         }},
        {"isdigit", all_of_class<CharacterClass::digit>},
        {"isdecimal", all_of_class<CharacterClass::decimal>},
        {"isnumeric", all_of_class<CharacterClass::numeric>},
        {"isalpha", all_of_class<CharacterClass::alphabetic>},
        {"isalnum", all_of_class<CharacterClass::alphanumeric>},
        {"isspace", looked_at<is_blank_text>},
        {"isascii", looked_at<is_ascii_text>},
        {"isidentifier", looked_at<is_identifier>},
        {"isprintable", looked_at<all_printable>},
        {"isupper", asked<is_upper>},
        {"islower", asked<is_lower>},
        {"istitle", asked<is_title>},
    };
    return kMethods;
}

// Of safe strings alone.
const std::map<std::string, StringMethod>& markup_methods() {
    using G = const Given&;
    static const std::map<std::string, StringMethod> kMethods = {
        {"striptags", strip_tags},
        {"unescape",
         [](G g) -> Value {
             const Bound bound = bound_of(g, {});
             return unescaped(g.runtime, g.text);
         }},
    };
    return kMethods;
}

}  // namespace

bool is_string_method(const Value& text, const std::string& name) {
    return string_methods().count(name) > 0 || (text.is_markup() && markup_methods().count(name) > 0);
}

Value call_string_method(Runtime& runtime, const Value& text, const std::string& name,
                         const Arguments& arguments) {
    const bool own = text.is_markup() && markup_methods().count(name) > 0;
    const auto& [known, method] = own ? *markup_methods().find(name) : *string_methods().find(name);
    runtime.work(text.string()->size());
    Value result = method({runtime, text, *text.string(), arguments, known.c_str(), text.is_markup()});
    if (result.string() == nullptr || result.is_markup() || own || !text.is_markup()) return result;
    runtime.spend(Value::kOfString + result.string()->size());
    return Value::markup(*result.string());
}

}  // namespace tandem::tokenizer::jinja
