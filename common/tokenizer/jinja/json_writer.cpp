// Values as Python's json module writes them.
#include <algorithm>
#include <cmath>

#include "common/error.h"
#include "common/tokenizer/jinja/object.h"
#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

class JsonWriter {
  public:
    JsonWriter(Runtime& runtime, const JsonStyle& style) : out(runtime), runtime_(runtime), style_(style) {}

    Text out;

    void write(const Value& value, std::size_t level) {
        runtime_.look_up(0);
        if (value.string() != nullptr) {
            string(*value.string());
        } else if (value.items() != nullptr) {
            group('[', ']', *value.items(), level, [&](const Value& item) { write(item, level + 1); });
        } else if (value.dict() != nullptr) {
            dictionary(*value.dict(), level);
        } else {
            out += scalar(value);
        }
    }

  private:
    static std::string scalar(const Value& value) {
        if (value.is_none()) return "null";
        if (const bool* flag = value.get<bool>()) return *flag ? "true" : "false";
        if (const Integer* whole = value.get<Integer>()) return to_text(*whole);
        if (const double* number = value.get<double>()) {
            if (std::isnan(*number)) return "NaN";
            if (std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
            return float_repr(*number);
        }
        throw Error(fmt::format("an object of type {} cannot be written as JSON", value.type_name()));
    }

    void dictionary(const Dict& dict, std::size_t level) {
        const auto write_one = [&](const auto& entry) {
            const auto& [key, item] = entry;
            if (key.items() != nullptr || key.object() != nullptr || key.is_undefined()) {
                throw Error(fmt::format("a key of type {} cannot be written as JSON", key.type_name()));
            }
            string(key.string() != nullptr ? *key.string() : scalar(key));
            out += style_.key_separator;
            write(item, level + 1);
        };
        if (!style_.sort_keys) return group('{', '}', dict.pairs(), level, write_one);
        runtime_.spend(dict.size() * sizeof(Value) * 2);
        Pairs sorted = dict.pairs();
        std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
            return order(runtime_, a.first, b.first).value_or(0) < 0;
        });
        group('{', '}', sorted, level, write_one);
    }

    void string(const std::string& text) {
        out += '"';
        std::size_t plain = 0;  // what stands from here on needs no escape
        for (std::size_t at = 0; at < text.size();) {
            if (is_plain(text[at])) {
                ++at;
                continue;
            }
            const std::size_t begin = at;
            const auto c = static_cast<std::uint32_t>(next_code_point(text, at));
            out += std::string_view(text).substr(plain, begin - plain);
            out += escape(c);
            plain = at;
        }
        out += std::string_view(text).substr(plain);
        out += '"';
    }

    bool is_plain(char c) const {
        const auto byte = static_cast<unsigned char>(c);
        return byte >= 0x20 && c != '"' && c != '\\' && (byte < 0x7F || !style_.ensure_ascii);
    }

    static std::string escape(std::uint32_t c) {
        constexpr std::string_view kPlain = "\"\\\n\r\t\b\f", kEscaped = "\"\\nrtbf";
        const std::size_t found = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
        if (found != std::string_view::npos) return {'\\', kEscaped[found]};
        if (c < 0x10000) return fmt::format("\\u{:04x}", c);
        return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
    }

    template <typename All, typename Write>
    void group(char open, char close, const All& all, std::size_t level, const Write& write_one) {
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
    void new_line(std::size_t level) {
        if (!style_.indent) return;
        out += '\n';
        out.fill(level, *style_.indent);
    }

    Runtime& runtime_;
    const JsonStyle& style_;
};

}  // namespace

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
    JsonWriter writer(runtime, style);
    writer.write(value, 0);
    return writer.out.take();
}

}  // namespace tandem::tokenizer::jinja
