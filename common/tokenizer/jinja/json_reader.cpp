#include "common/tokenizer/jinja/json_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/error.h"
#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

class JsonReader {
  public:
    JsonReader(Runtime& runtime, std::string_view text) : runtime_(runtime), in_(text) {}

    Value whole() {
        if (!is_valid_utf8(in_)) fail("not UTF-8");
        Value result = value(0);
        blanks();
        if (at_ < in_.size()) fail("more behind the value");
        return result;
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        const std::string_view before = in_.substr(0, at_);
        const auto line = 1 + std::count(before.begin(), before.end(), '\n');
        const std::size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
        throw BadInput(fmt::format("line {}, column {}: {}", line, at_ - begin + 1, what));
    }
    void blanks() {
        while (at_ < in_.size() && std::string_view(" \t\n\r").find(in_[at_]) != std::string_view::npos)
            ++at_;
    }
    bool take(std::string_view what) {
        if (!in_.substr(at_).starts_with(what)) return false;
        at_ += what.size();
        return true;
    }

    Value value(int depth) {
        if (depth > Value::kDeepest) fail("values are nested too deep");
        runtime_.spend(2 * sizeof(Value));  // twice: vectors double
        blanks();
        if (at_ >= in_.size()) fail("a value expected");
        if (in_[at_] == '"') return string();
        if (take("[")) return list(depth);
        if (take("{")) return object(depth);
        constexpr double kInfinity = std::numeric_limits<double>::infinity();
        if (take("true")) return true;
        if (take("false")) return false;
        if (take("null")) return Value::None{};
        if (take("NaN")) return std::nan("");
        if (take("Infinity")) return kInfinity;
        if (take("-Infinity")) return -kInfinity;
        return number();
    }

    Value list(int depth) {
        List items;
        blanks();
        if (take("]")) return Value::list(runtime_, {});
        do {
            items.push_back(value(depth + 1));
            blanks();
        } while (take(","));
        if (!take("]")) fail("',' or ']' expected");
        return Value::list(runtime_, std::move(items));
    }

    Value object(int depth) {
        Dict entries;
        blanks();
        if (take("}")) return Value::dict(runtime_, {});
        do {
            blanks();
            if (at_ >= in_.size() || in_[at_] != '"') fail("a key in quotes expected");
            Value key = string();
            blanks();
            if (!take(":")) fail("':' expected");
            entries.put(runtime_, std::move(key), value(depth + 1));
            blanks();
        } while (take(","));
        if (!take("}")) fail("',' or '}' expected");
        return Value::dict(runtime_, std::move(entries));
    }

    std::size_t digits(std::size_t from) const {
        while (from < in_.size() && in_[from] >= '0' && in_[from] <= '9') ++from;
        return from;
    }

    Value number() {
        const std::size_t begin = at_ + (in_[at_] == '-' ? 1 : 0);
        const std::size_t whole = begin < in_.size() && in_[begin] == '0' ? begin + 1 : digits(begin);
        if (whole == begin) fail("a value expected");
        std::size_t end = whole;
        if (end < in_.size() && in_[end] == '.' && digits(end + 1) > end + 1) end = digits(end + 1);
        if (end < in_.size() && (in_[end] | 0x20) == 'e') {
            const bool is_signed = end + 1 < in_.size() && (in_[end + 1] == '-' || in_[end + 1] == '+');
            const std::size_t exponent = end + (is_signed ? 2 : 1);
            if (digits(exponent) > exponent) end = digits(exponent);
        }
        const std::string_view text = in_.substr(at_, end - at_);
        if (end > whole) {
            at_ = end;
            return *parse_real(text);
        }
        try {
            const Value result = *parse_integer(text);
            at_ = end;
            return result;
        } catch (const Error& error) {
            fail(error.what());
        }
    }

    std::uint32_t code_unit() {
        std::uint32_t unit = 0;
        for (int i = 0; i < 4; ++i, ++at_) {
            const char c = at_ < in_.size() ? in_[at_] : ' ', low = static_cast<char>(c | 0x20);
            const bool digit = c >= '0' && c <= '9', letter = low >= 'a' && low <= 'f';
            if (!digit && !letter) fail("an escape that is no character");
            unit = unit * 16 + static_cast<std::uint32_t>(digit ? c - '0' : low - 'a' + 10);
        }
        return unit;
    }

    void escape(std::string& out) {
        constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
        const char c = at_ < in_.size() ? in_[at_++] : ' ';
        if (const std::size_t found = kFrom.find(c); found != std::string_view::npos) {
            out += kTo[found];
            return;
        }
        if (c != 'u') fail("an unknown escape");
        std::uint32_t code = code_unit();
        if (code >= 0xD800 && code < 0xDC00 && take("\\u")) {
            const std::uint32_t low = code_unit();
            if (low < 0xDC00 || low >= 0xE000) fail("half of a surrogate pair");
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        } else if (code >= 0xD800 && code < 0xE000) {
            fail("half of a surrogate pair");
        }
        append_utf8(out, static_cast<char32_t>(code));
    }

    std::string string() {
        std::string out;
        for (++at_;;) {
            if (at_ >= in_.size()) fail("a string is not closed");
            const char c = in_[at_];
            if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
            ++at_;
            if (c == '"') break;
            if (c == '\\') {
                escape(out);
            } else {
                out += c;
            }
        }
        runtime_.spend(Value::kOfString + out.size());
        return out;
    }

    Runtime& runtime_;
    std::string_view in_;
    std::size_t at_ = 0;
};

}  // namespace

Value read_json(Runtime& runtime, std::string_view text) {
    return JsonReader(runtime, text).whole();
}

Value read_json(std::string_view text) {
    Runtime unlimited(Limits::none());
    return read_json(unlimited, text);
}

}  // namespace tandem::tokenizer::jinja
