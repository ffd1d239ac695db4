#include "common/tokenizer/jinja/text.h"

#include <unicode/uchar.h>

#include <charconv>
#include <cmath>

#include "common/error.h"
#include "common/tokenizer/jinja/object.h"
#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

void print_string(Text& out, const std::string& text) {
    const char quote =
        text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
    out += quote;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        const char32_t c = next_code_point(text, at);
        const auto code = static_cast<std::uint32_t>(c);
        if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '\t') {
            out += "\\t";
        } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
            out += '\\';
            out += static_cast<char>(c);
        } else if (is_printable(c)) {
            out += std::string_view(text).substr(begin, at - begin);
        } else {
            out += code < 0x100     ? fmt::format("\\x{:02x}", code)
                   : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                    : fmt::format("\\U{:08x}", code);
        }
    }
    out += quote;
}

void print_items(Runtime& runtime, Text& out, const List& items) {
    bool first = true;
    for (const Value& item : items) {
        if (!first) out += ", ";
        first = false;
        print_repr(runtime, out, item);
    }
}

}  // namespace

Text::Text(Runtime& runtime) : runtime_(runtime) {
    runtime.spend(Value::kOfString);
}

Text& Text::operator+=(std::string_view more) {
    runtime_.spend(more.size());
    if (text_.size() + more.size() > text_.capacity()) runtime_.need_for_now(text_.size());
    text_ += more;
    return *this;
}

void Text::fill(std::size_t count, std::string_view with) {
    if (with.empty()) return;
    if (count > Value::kHeaviest / with.size()) throw Error("a value grows too large");
    for (std::size_t i = 0; i < count; ++i) *this += with;
}

bool is_printable(char32_t c) {
    if (c == ' ') return true;
    constexpr std::uint32_t kHidden = U_GC_C_MASK | U_GC_Z_MASK;
    return (U_GET_GC_MASK(static_cast<UChar32>(c)) & kHidden) == 0;
}

std::string float_repr(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    char buffer[40];
    const double size = std::fabs(value);
    const bool exponent = size != 0 && (size < 1e-4 || size >= 1e16);
    const auto [end, error] =
        std::to_chars(buffer, buffer + sizeof buffer, value,
                      exponent ? std::chars_format::scientific : std::chars_format::fixed);
    std::string text(buffer, end);
    if (!exponent && text.find('.') == std::string::npos) text += ".0";
    return text;
}

void print(Runtime& runtime, Text& out, const Value& value) {
    if (value.string() != nullptr) {
        out += *value.string();
    } else if (!value.is_undefined()) {
        print_repr(runtime, out, value);
    }
}

void print_repr(Runtime& runtime, Text& out, const Value& value) {
    constexpr std::size_t kOfOne = 64;
    runtime.look_up(kOfOne);
    if (value.string() != nullptr) {
        if (value.is_markup()) out += "Markup(";
        print_string(out, *value.string());
        if (value.is_markup()) out += ')';
    } else if (const bool* flag = value.get<bool>()) {
        out += *flag ? "True" : "False";
    } else if (const Integer* whole = value.get<Integer>()) {
        out += to_text(*whole);
    } else if (const double* real = value.get<double>()) {
        out += float_repr(*real);
    } else if (value.items() != nullptr) {
        out += value.is_tuple() ? '(' : '[';
        print_items(runtime, out, *value.items());
        if (value.is_tuple() && value.items()->size() == 1) out += ',';
        out += value.is_tuple() ? ')' : ']';
    } else if (value.dict() != nullptr) {
        out += '{';
        bool first = true;
        for (const auto& [key, item] : value.dict()->pairs()) {
            if (!first) out += ", ";
            first = false;
            print_repr(runtime, out, key);
            out += ": ";
            print_repr(runtime, out, item);
        }
        out += '}';
    } else if (value.object() != nullptr) {
        (*value.object())->print(runtime, out);
    } else {
        out += value.is_none() ? "None" : "Undefined";
    }
}

std::string str(Runtime& runtime, const Value& value) {
    Text out(runtime);
    print(runtime, out, value);
    return out.take();
}

std::string repr(Runtime& runtime, const Value& value) {
    Text out(runtime);
    print_repr(runtime, out, value);
    return out.take();
}

}  // namespace tandem::tokenizer::jinja
