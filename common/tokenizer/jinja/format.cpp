// "%s" % value, "{}".format(value) and format(value, specification), as Python has them.
#include <algorithm>
#include <cmath>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/number_format.h"
#include "common/tokenizer/jinja/strings.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

// ascii(value)
std::string ascii(Runtime& runtime, const Value& value) {
    const std::string text = repr(runtime, value);
    Text out(runtime);
    for (std::size_t at = 0; at < text.size();) {
        const auto c = static_cast<std::uint32_t>(next_code_point(text, at));
        out += c < 0x80      ? std::string(1, static_cast<char>(c))
               : c < 0x100   ? fmt::format("\\x{:02x}", c)
               : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                             : fmt::format("\\U{:08x}", c);
    }
    return out.take();
}

std::string character(Integer code) {
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) throw Error("%c is no character");
    std::string out;
    append_utf8(out, static_cast<char32_t>(code));
    return out;
}

std::string converted(Runtime& runtime, const Value& value, char how) {
    return how == 'r' ? repr(runtime, value) : how == 'a' ? ascii(runtime, value) : str(runtime, value);
}

void digits_work(Runtime& runtime, const FormatSpec& spec) {
    constexpr int kMost = 320;  // before the point
    runtime.case_work(static_cast<std::size_t>(kMost + spec.precision.value_or(0)));
}

std::string_view cut(std::string_view text, const std::optional<int>& precision) {
    return precision ? text.substr(0, bytes_of(text, static_cast<std::size_t>(*precision))) : text;
}

// "text %s".
class Percent {
  public:
    Percent(Runtime& runtime, const std::string& format, const Value& values)
        : runtime_(runtime), format_(format), values_(values), out_(runtime) {}

    std::string run() {
        for (at_ = 0; at_ < format_.size();) {
            const std::size_t next = std::min(format_.find('%', at_), format_.size());
            out_ += std::string_view(format_).substr(at_, next - at_);
            at_ = next;
            if (at_ < format_.size()) directive();
        }
        const bool mapping = values_.dict() != nullptr || values_.is_undefined() ||
                             values_.as<Range>() != nullptr ||
                             (values_.items() != nullptr && !values_.is_tuple());
        if (used_ < count() && !mapping) throw Error("not all arguments converted during string formatting");
        return out_.take();
    }

  private:
    std::size_t count() const { return values_.is_tuple() ? values_.items()->size() : 1; }

    const Value& argument() {
        if (used_ >= count()) throw Error("not enough arguments for format string");
        ++used_;
        return values_.is_tuple() ? (*values_.items())[used_ - 1] : values_;
    }

    // (name): of a dictionary.
    const Value* named() {
        if (at_ >= format_.size() || format_[at_] != '(') return nullptr;
        const std::size_t close = format_.find(')', at_);
        if (close == std::string::npos) throw Error("incomplete format key");
        if (values_.dict() == nullptr) throw Error("format requires a mapping");
        const std::string_view key = std::string_view(format_).substr(at_ + 1, close - at_ - 1);
        if (key.find('(') != std::string::npos) throw Error("parentheses in a format key are not supported");
        const Value* found = values_.dict()->find_name(runtime_, key);
        if (found == nullptr) throw Error("a format names '" + shown(key) + "', which is not given");
        at_ = close + 1;
        used_ = count();
        return found;
    }

    std::size_t number(std::size_t most) {
        if (at_ < format_.size() && format_[at_] == '*') throw Error("%* is not supported");
        std::size_t value = 0;
        for (; at_ < format_.size() && format_[at_] >= '0' && format_[at_] <= '9'; ++at_) {
            value = value * 10 + static_cast<std::size_t>(format_[at_] - '0');
            if (value > most) throw Error("a number in a format is too large");
        }
        return value;
    }

    void directive() {
        ++at_;
        const Value* value = named();
        FormatSpec spec;
        bool left = false, zeros = false;
        for (; at_ < format_.size() && std::string_view("-+ #0").find(format_[at_]) != std::string_view::npos;
             ++at_) {
            const char flag = format_[at_];
            left = left || flag == '-';
            zeros = zeros || flag == '0';
            spec.alternate = spec.alternate || flag == '#';
            if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
        }
        spec.width = number(std::size_t{1} << 20);
        if (at_ < format_.size() && format_[at_] == '.') {
            ++at_;
            spec.precision = static_cast<int>(number(1000));
        }
        while (at_ < format_.size() && std::string_view("hlL").find(format_[at_]) != std::string_view::npos)
            ++at_;
        if (at_ >= format_.size()) throw Error("incomplete format");
        spec.type = format_[at_++];
        if (spec.type == '%') {
            out_ += '%';
            return;
        }
        spec.align = left ? '<' : zeros ? '=' : '>';
        if (spec.align == '=') spec.fill = "0";
        write(value != nullptr ? *value : argument(), spec);
    }

    void write(const Value& value, FormatSpec spec) {
        const std::string_view texts = "rsa", wholes = "diu", bases = "oxX", reals = "eEfFgG";
        const auto is = [&](std::string_view any) { return any.find(spec.type) != std::string_view::npos; };
        if (is(texts) || spec.type == 'c') {
            spec.fill = " ";
            std::string text;
            if (spec.type == 'c' && value.integer()) {
                text = character(*value.integer());
            } else if (spec.type == 'c' &&
                       (value.string() == nullptr || count_characters(*value.string()) != 1)) {
                throw Error("%c requires int or char");
            } else {
                text = converted(runtime_, value, spec.type);
            }
            return pad_text(out_, spec.type == 'c' ? text : cut(text, spec.precision), spec,
                            spec.align == '<' ? '<' : '>');
        }
        if (value.is_undefined()) throw Error(*value.get<Value::Undefined>()->what);
        if (!value.is_number())
            throw Error(
                fmt::format("%{} format: a real number is required, not {}", spec.type, value.type_name()));
        if (is(reals)) {
            spec.grouping = '\0';
            digits_work(runtime_, spec);
            return pad_number(out_, real_text(*value.number(), spec), spec);
        }
        if (is(bases) && !value.integer())
            throw Error(fmt::format("%{} format: an integer is required", spec.type));
        if (!is(wholes) && !is(bases))
            throw Error(fmt::format("unsupported format character '{}'", spec.type));
        if (is(wholes)) spec.type = 'd';
        NumberText text = integer_text(value.integer() ? *value.integer() : truncated(*value.number()), spec);
        if (spec.precision && text.digits.size() < static_cast<std::size_t>(*spec.precision)) {
            text.digits.insert(0, static_cast<std::size_t>(*spec.precision) - text.digits.size(), '0');
        }
        pad_number(out_, text, spec);
    }

    Runtime& runtime_;
    const std::string& format_;
    const Value& values_;
    Text out_;
    std::size_t at_ = 0, used_ = 0;
};

// "{} {0} {name.part[key]!r:>5}".
class Braces {
  public:
    Braces(Runtime& runtime, const Arguments& arguments)
        : runtime_(runtime), positional_(arguments.positional), named_(runtime, arguments.named) {}

    std::string run(std::string_view format, int depth) {
        if (depth > 2) throw Error("max string recursion exceeded");
        Text out(runtime_);
        for (std::size_t i = 0; i < format.size(); ++i) {
            const char c = format[i];
            if (c != '{' && c != '}') {
                out += c;
            } else if (i + 1 < format.size() && format[i + 1] == c) {
                out += c;
                ++i;
            } else if (c == '}') {
                throw Error("single '}' in a format");
            } else {
                const std::size_t close = closing(format, i);
                out += field(format.substr(i + 1, close - i - 1), depth);
                i = close;
            }
        }
        return out.take();
    }

  private:
    static std::size_t closing(std::string_view format, std::size_t open) {
        int level = 0;
        for (std::size_t i = open; i < format.size(); ++i) {
            level += format[i] == '{' ? 1 : format[i] == '}' ? -1 : 0;
            if (level == 0) return i;
        }
        throw Error("expected '}' before end of string");
    }

    std::string field(std::string_view text, int depth) {
        std::size_t end = 0;  // of the name
        for (bool bracket = false; end < text.size() && (bracket || (text[end] != '!' && text[end] != ':'));
             ++end) {
            bracket = text[end] == '[' || (bracket && text[end] != ']');
        }
        const std::string_view name = text.substr(0, end);
        std::string_view spec;
        char conversion = '\0';
        if (end < text.size() && text[end] == '!') {
            if (end + 1 >= text.size() || (end + 2 < text.size() && text[end + 2] != ':'))
                throw Error("expected ':' after conversion specifier");
            conversion = text[end + 1];
            if (std::string_view("rsa").find(conversion) == std::string_view::npos)
                throw Error("unknown conversion specifier");
            end += 2;
        }
        if (end < text.size()) spec = text.substr(end + 1);
        Value value = found(name);
        if (conversion != '\0') value = converted(runtime_, value, conversion);
        return format_value(runtime_, value, run(spec, depth + 1));
    }

    Value found(std::string_view name) {
        const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
        const std::string_view first = name.substr(0, first_end);
        const bool number = !first.empty() && first.find_first_not_of("0123456789") == std::string::npos;
        if (name.empty() || (number && first_end == name.size())) {
            const int kind = name.empty() ? 1 : 2;
            if (numbering_ != 0 && numbering_ != kind)
                throw Error("cannot switch between automatic and manual field numbering");
            numbering_ = kind;
        }
        Value value;
        if (name.empty() || number) {
            const std::size_t place = name.empty()       ? next_++
                                      : first.size() > 6 ? SIZE_MAX
                                                         : std::stoul(std::string(first));
            if (place >= positional_.size())
                throw Error("a format names {" + shown(name) + "}, which is not given");
            value = positional_[place];
        } else {
            const Value* given = named_.find_name(runtime_, first);
            if (given == nullptr) throw Error("a format names {" + shown(first) + "}, which is not given");
            value = *given;
        }
        return parts(value, name.substr(first_end));
    }

    // ".name" and "[key]" behind.
    Value parts(Value value, std::string_view rest) {
        for (std::size_t at = 0; at < rest.size();) {
            runtime_.step(runtime_.line());
            if (rest[at] == '.') {
                const std::size_t end = std::min(rest.find_first_of(".[", at + 1), rest.size());
                runtime_.spend(end - at);
                value = attribute(runtime_, value, std::string(rest.substr(at + 1, end - at - 1)));
                at = end;
            } else {
                const std::size_t close = rest.find(']', at);
                if (rest[at] != '[' || close == std::string::npos)
                    throw Error("a field's name in a format is malformed");
                runtime_.spend(Value::kOfString + close - at);
                const std::string key(rest.substr(at + 1, close - at - 1));
                const bool number = !key.empty() && key.find_first_not_of("0123456789") == std::string::npos;
                value = subscript(runtime_, value, number ? Value(*parse_integer(key)) : Value(key));
                at = close + 1;
            }
        }
        return value;
    }

    Runtime& runtime_;
    const List& positional_;
    const Dict named_;
    std::size_t next_ = 0;
    int numbering_ = 0;  // 1: automatic, 2: by number
};

}  // namespace

std::string percent_format(Runtime& runtime, const std::string& format, const Value& values) {
    return Percent(runtime, format, values).run();
}

std::string brace_format(Runtime& runtime, const std::string& format, const Arguments& arguments) {
    return Braces(runtime, arguments).run(format, 0);
}

std::string format_value(Runtime& runtime, const Value& value, std::string_view text) {
    if (text.empty()) return str(runtime, value);
    FormatSpec spec = parse_spec(text);
    Text out(runtime);
    const auto is = [&](std::string_view any) { return any.find(spec.type) != std::string_view::npos; };
    if (value.string() != nullptr) {
        if ((spec.type != '\0' && spec.type != 's') || spec.sign != '-' || spec.alternate ||
            spec.grouping != '\0' || (spec.align == '=' && spec.fill != "0")) {
            throw Error("invalid format '" + shown(text) + "' of a string");
        }
        const char align = spec.align == '\0' || spec.align == '=' ? '<' : spec.align;
        pad_text(out, cut(*value.string(), spec.precision), spec, align);
    } else if (value.integer() && (spec.type == '\0' || is("bdoxXn"))) {
        if (spec.precision) throw Error("precision not allowed in integer format specifier");
        pad_number(out, integer_text(*value.integer(), spec), spec);
    } else if (value.integer() && spec.type == 'c') {
        pad_text(out, character(*value.integer()), spec, spec.align == '\0' ? '>' : spec.align);
    } else if (value.is_number() && (is("eEfFgGn%") || (spec.type == '\0' && !value.integer()))) {
        digits_work(runtime, spec);
        pad_number(out, real_text(*value.number(), spec), spec);
    } else {
        throw Error("invalid format '" + shown(text) + "' of a '" + value.type_name() + "'");
    }
    return out.take();
}

}  // namespace tandem::tokenizer::jinja
