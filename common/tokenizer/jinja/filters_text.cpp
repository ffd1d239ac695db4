// Filters that make text.
#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/jinja/bound.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/strings.h"
#include "common/tokenizer/jinja/wrap.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

using R = Runtime&;
using V = const Value&;
using A = const Arguments&;

// A string as it is, anything else as it is printed.
Value soft(R runtime, V value) {
    return value.string() != nullptr ? value : Value(str(runtime, value));
}

// A method of the value's text under the filter's name and parameters.
template <std::size_t kMost>
Value by_method(R runtime, V value, A arguments, const char* method, const char* const (&names)[kMost]) {
    if (arguments.positional.size() > kMost)
        throw Error(fmt::format("{}() takes too many arguments", method));
    Arguments given{arguments.positional, {}};
    for (const auto& [name, one] : arguments.named) {
        if (given.positional.size() >= kMost || name != names[given.positional.size()]) {
            throw Error(fmt::format("{}() takes no argument '{}' here", method, name));
        }
        given.positional.push_back(one);
    }
    return call_method(runtime, soft(runtime, value), method, given);
}
Value by_method(R runtime, V value, A arguments, const char* method) {
    const Bound none(method, arguments, {});
    return call_method(runtime, soft(runtime, value), method, {});
}

// "it's a-b" becomes "It's A-B": words begin behind white space, hyphens and opening brackets.
Value title_words(R runtime, V value, A arguments) {
    const Bound bound("title", arguments, {});
    const std::string text = str(runtime, value);
    Text out(runtime);
    const auto starts = [](char32_t c) {
        return is_space(c) ||
               (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
    };
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        const bool border = starts(next_code_point(text, at));
        const std::size_t first = at;
        for (std::size_t next = at; next < text.size() && starts(next_code_point(text, next)) == border;)
            at = next;
        const std::string_view all(text);
        out += upper(runtime, all.substr(begin, first - begin));
        out += lower(runtime, all.substr(first, at - first));
    }
    return out.take();
}

Value indented(R runtime, V value, A arguments) {
    const Bound bound("indent", arguments, {"width", "first", "blank"});
    if (value.string() == nullptr)
        throw Error(fmt::format("indent needs a string, found '{}'", value.type_name()));
    const bool text = bound.given(0) && bound[0]->string() != nullptr;
    const Integer width = text ? 0 : bound.integer(0, 4);
    constexpr Integer kWidest = 4096;
    if (width > kWidest) throw Error("indent: the width is too large");
    const std::string blanks(static_cast<std::size_t>(std::max<Integer>(width, 0)), ' ');
    const std::string_view margin = text ? *bound[0]->string() : blanks;
    const bool blank = bound.flag(2, false);
    Text closed(runtime), out(runtime);
    closed += *value.string();
    closed += '\n';
    bool at_first = true;
    split_lines(closed.take(), false, [&](std::string_view line) {
        if (!at_first) out += '\n';
        if (at_first ? bound.flag(1, false) : blank || !line.empty()) out += margin;
        out += line;
        at_first = false;
    });
    if (value.is_markup()) return Value::markup(out.take());
    return out.take();
}

Value truncated_text(R runtime, V value, A arguments) {
    const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
    const Integer most = bound.integer(0, 255), leeway = bound.is_none(3) ? 5 : bound.integer(3, 5);
    const std::string_view end = bound.string(2, "...");
    const Integer kept = most - static_cast<Integer>(count_characters(end));
    if (value.string() == nullptr) throw Error("truncate needs a string");
    if (kept < 0) throw Error(fmt::format("truncate: the length must be at least that of '{}'", shown(end)));
    if (leeway < 0) throw Error("truncate: the leeway must not be negative");
    const std::string& text = *value.string();
    runtime.work(text.size());
    if (static_cast<Integer>(count_characters(text)) <= most + leeway) return value;
    std::string_view head = std::string_view(text).substr(0, bytes_of(text, static_cast<std::size_t>(kept)));
    if (!bound.flag(1, false)) {
        const std::size_t space = head.rfind(' ');
        if (space != std::string_view::npos) head = head.substr(0, space);
    }
    Text out(runtime);
    out += head;
    out += end;
    return out.take();
}

Value word_count(R runtime, V value, A arguments) {
    const Bound bound("wordcount", arguments, {});
    const std::string text = str(runtime, value);
    runtime.case_work(text.size());
    Integer count = 0;
    bool inside = false;
    for (std::size_t at = 0; at < text.size();) {
        const bool now = is_word_character(next_code_point(text, at));
        count += now && !inside ? 1 : 0;
        inside = now;
    }
    return count;
}

Value word_wrap(R runtime, V value, A arguments) {
    const Bound bound("wordwrap", arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
    if (value.string() == nullptr) throw Error("wordwrap needs a string");
    const WrapStyle style{bound.integer(0, 79), bound.flag(1, true), bound.flag(3, true)};
    const std::string_view between = bound.is_none(2) ? std::string_view("\n") : bound.string(2);
    Text out(runtime);
    bool first = true;
    split_lines(*value.string(), false, [&](std::string_view line) {
        bool any = false;
        wrap(runtime, line, style, [&](std::string_view piece) {
            if (!first) out += between;
            first = false;
            any = true;
            out += piece;
        });
        if (!any && !first) out += between;
        first = false;
    });
    return out.take();
}

Value replace_all(R runtime, V value, A arguments) {
    const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
    Arguments given{{str(runtime, *bound[0]), str(runtime, *bound[1])}, {}};
    if (!bound.is_none(2)) given.positional.push_back(*bound[2]);
    return call_method(runtime, Value(str(runtime, value)), "replace", given);
}

Value format_filter(R runtime, V value, A arguments) {
    if (!arguments.positional.empty() && !arguments.named.empty()) {
        throw Error("format takes arguments by place or by name, not both");
    }
    if (value.is_markup()) throw Error("format of a safe string is not supported");
    const std::string text = str(runtime, value);
    if (arguments.named.empty())
        return percent_format(runtime, text, Value::tuple(runtime, arguments.positional));
    return percent_format(runtime, text, Value::dict(runtime, Dict(runtime, arguments.named)));
}

std::string url_quoted(R runtime, V value, bool query) {
    const std::string text = str(runtime, value);
    Text out(runtime);
    for (const char c : text) {
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (letter || std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query)) {
            out += c;
        } else if (c == ' ' && query) {
            out += '+';
        } else {
            out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        }
    }
    return out.take();
}

Value url_encode(R runtime, V value, A arguments) {
    const Bound bound("urlencode", arguments, {});
    if (value.string() != nullptr || value.is_undefined() || !is_iterable(runtime, value)) {
        return url_quoted(runtime, value, false);
    }
    const Value pairs = value.dict() != nullptr ? call_method(runtime, value, "items", {}) : value;
    Text out(runtime);
    for (const Value& pair : elements(runtime, pairs)) {
        const List parts = elements(runtime, pair);
        if (parts.size() != 2) throw Error("urlencode needs pairs");
        if (out.size() > 0) out += '&';
        out += url_quoted(runtime, parts[0], true) + "=" + url_quoted(runtime, parts[1], true);
    }
    return out.take();
}

Value xml_attributes(R runtime, V value, A arguments) {
    const Bound bound("xmlattr", arguments, {"autospace"});
    if (value.dict() == nullptr) throw Error("xmlattr needs a dictionary");
    Text out(runtime);
    for (const auto& [key, item] : value.dict()->pairs()) {
        if (item.is_none() || item.is_undefined()) continue;
        if (key.string() == nullptr) throw Error("xmlattr needs strings as keys");
        for (std::size_t at = 0; at < key.string()->size();) {
            const char32_t c = next_code_point(*key.string(), at);
            if (is_space(c) || c == '/' || c == '>' || c == '=')
                throw Error("invalid character in attribute name");
        }
        if (out.size() > 0 || bound.flag(0, true)) out += ' ';
        out += escape_html(runtime, key) + "=\"" + escape_html(runtime, item) + "\"";
    }
    return out.take();
}

}  // namespace

std::string escape_html(Runtime& runtime, const Value& value) {
    const std::string text = str(runtime, value);
    if (value.is_markup()) return text;
    Text out(runtime);
    for (const char c : text) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '\'':
                out += "&#39;";
                break;
            case '"':
                out += "&#34;";
                break;
            default:
                out += c;
        }
    }
    return out.take();
}

Filters text_filters() {
    const auto escape = [](R r, V v, A a) {
        const Bound none("escape", a, {});
        return Value::markup(escape_html(r, v));
    };
    return {
        {"trim", [](R r, V v, A a) { return by_method(r, v, a, "strip", {"chars"}); }},
        {"center",
         [](R r, V v, A a) {
             return by_method(r, v, a.positional.empty() && a.named.empty() ? Arguments{{80}, {}} : a,
                              "center", {"width"});
         }},
        {"lower", [](R r, V v, A a) { return by_method(r, v, a, "lower"); }},
        {"upper", [](R r, V v, A a) { return by_method(r, v, a, "upper"); }},
        {"capitalize", [](R r, V v, A a) { return by_method(r, v, a, "capitalize"); }},
        {"title", title_words},
        {"string",
         [](R r, V v, A a) {
             const Bound none("string", a, {});
             return soft(r, v);
         }},
        {"safe",
         [](R r, V v, A a) {
             const Bound none("safe", a, {});
             return Value::markup(str(r, v));
         }},
        {"escape", escape},
        {"e", escape},
        {"forceescape",
         [](R r, V v, A a) {
             const Bound none("forceescape", a, {});
             return Value::markup(escape_html(r, Value(str(r, v))));
         }},
        {"striptags",
         [](R r, V v, A a) {
             const Bound none("striptags", a, {});
             return call_method(r, Value::markup(str(r, v)), "striptags", {});
         }},
        {"indent", indented},
        {"truncate", truncated_text},
        {"wordcount", word_count},
        {"wordwrap", word_wrap},
        {"replace", replace_all},
        {"format", format_filter},
        {"urlencode", url_encode},
        {"xmlattr", xml_attributes},
    };
}

}  // namespace tandem::tokenizer::jinja
