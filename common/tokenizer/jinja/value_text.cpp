// Values as Python prints them, and as its json module writes them.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/error.h"
#include "common/tokenizer/jinja/value.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

std::string string_repr(const std::string& text) {
    const char quote =
        text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
    std::string out(1, quote);
    for (std::size_t at = 0; at < text.size();) {
        const char32_t c = next_code_point(text, at);
        const bool control = c < 0x20 || (c >= 0x7F && c < 0xA1) || c == 0xAD;
        if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '\t') {
            out += "\\t";
        } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
            out += '\\';
            out += static_cast<char>(c);
        } else if (control) {
            out += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c));
        } else if (c > 0x7F && is_white_space(c)) {
            out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
        } else {
            append_utf8(out, c);
        }
    }
    return out + quote;
}

std::string json_string(const std::string& text, bool ascii) {
    std::string out = "\"";
    for (std::size_t at = 0; at < text.size();) {
        constexpr std::string_view kPlain = "\"\\\n\r\t\b\f", kEscaped = "\"\\nrtbf";
        const auto c = static_cast<std::uint32_t>(next_code_point(text, at));
        const std::size_t found = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
        if (found != std::string_view::npos) {
            out += '\\';
            out += kEscaped[found];
        } else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000)) {
            out += c == 0x7F ? "\x7F" : fmt::format("\\u{:04x}", c);
        } else if (ascii && c >= 0x10000) {
            out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
        } else {
            append_utf8(out, c);
        }
    }
    return out + "\"";
}

class JsonWriter {
  public:
    explicit JsonWriter(const JsonStyle& style) : style_(style) {}

    std::string out;

    void write(const Value& value, int level) {
        if (value.string() != nullptr) {
            out += json_string(*value.string(), style_.ensure_ascii);
        } else if (value.is_none()) {
            out += "null";
        } else if (const bool* flag = value.get<bool>()) {
            out += *flag ? "true" : "false";
        } else if (const double* number = value.get<double>()) {
            out += std::isnan(*number)   ? "NaN"
                   : std::isinf(*number) ? (*number > 0 ? "Infinity" : "-Infinity")
                                         : float_repr(*number);
        } else if (const auto whole = value.integer()) {
            out += std::to_string(*whole);
        } else if (value.items() != nullptr) {
            group('[', ']', *value.items(), level, [&](const Value& item) { write(item, level + 1); });
        } else if (value.space() == nullptr && value.entries() != nullptr) {
            Entries entries = *value.entries();
            const auto by_key = [](const auto& a, const auto& b) { return a.first < b.first; };
            if (style_.sort_keys) std::stable_sort(entries.begin(), entries.end(), by_key);
            group('{', '}', entries, level, [&](const auto& entry) {
                out += json_string(entry.first, style_.ensure_ascii) + style_.key_separator;
                write(entry.second, level + 1);
            });
        } else {
            throw Error(fmt::format("an object of type {} cannot be written as JSON", value.type_name()));
        }
    }

  private:
    template <typename All, typename Write>
    void group(char open, char close, const All& all, int level, const Write& write_one) {
        out += open;
        bool first = true;
        for (const auto& one : all) {
            if (!first) out += style_.item_separator;
            first = false;
            new_line(level + 1);
            write_one(one);
        }
        if (!first) new_line(level);
        out += close;
    }
    void new_line(int level) {
        if (style_.indent >= 0) out.append("\n").append(static_cast<std::size_t>(style_.indent * level), ' ');
    }

    const JsonStyle& style_;
};

}  // namespace

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

std::string Value::str() const {
    if (const std::string* text = string()) return *text;
    if (is_undefined()) return "";
    return repr();
}

std::string Value::repr() const {
    if (is_undefined()) return "Undefined";
    if (is_none()) return "None";
    if (const bool* flag = get<bool>()) return *flag ? "True" : "False";
    if (const auto whole = integer()) return std::to_string(*whole);
    if (const double* real = get<double>()) return float_repr(*real);
    if (const std::string* text = string()) return string_repr(*text);
    std::string out;
    if (items() != nullptr) {
        for (const Value& item : *items()) out += (out.empty() ? "" : ", ") + item.repr();
        return "[" + out + "]";
    }
    if (space() == nullptr && entries() != nullptr) {
        for (const auto& [key, value] : *entries()) {
            out += (out.empty() ? "" : ", ") + string_repr(key) + ": " + value.repr();
        }
        return "{" + out + "}";
    }
    return fmt::format("<{}>", type_name());
}

std::string to_json(const Value& value, const JsonStyle& style) {
    JsonWriter writer(style);
    writer.write(value, 0);
    return std::move(writer.out);
}

}  // namespace tandem::tokenizer::jinja
