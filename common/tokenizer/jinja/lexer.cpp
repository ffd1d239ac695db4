#include "common/tokenizer/jinja/lexer.h"

#include <string_view>

#include "common/error.h"
#include "common/tokenizer/jinja/strings.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

using Kind = Token::Kind;

// "\r\n" and "\r" become "\n"; one newline at the end goes.
std::string plain_newlines(std::string_view source) {
    std::string out;
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
            out += '\n';
        } else {
            out += source[i];
        }
    }
    if (out.ends_with('\n')) out.pop_back();
    return out;
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

class Lexer {
  public:
    Lexer(std::string_view source, const ThreadClock& clock)
        : source_(plain_newlines(source)), in_(source_), clock_(clock) {}

    std::vector<Token> run() {
        while (at_ < in_.size()) between_tags();
        push(Kind::end, "");
        return std::move(tokens_);
    }

  private:
    [[noreturn]] void fail(std::string_view message) const {
        throw Error(fmt::format("line {}: {}", line_, message));
    }
    void push(Kind kind, std::string text) {
        constexpr std::size_t kClockEvery = 1024;
        if (tokens_.size() % kClockEvery == kClockEvery - 1) clock_.look();
        if (tokens_.size() >= kMostTokens) fail(fmt::format("more than {} tokens", kMostTokens));
        tokens_.push_back({kind, std::move(text), line_});
    }
    bool at(std::string_view text) const { return in_.substr(at_, text.size()) == text; }
    void move_to(std::size_t to) {
        for (; at_ < to; ++at_) line_ += in_[at_] == '\n' ? 1 : 0;
    }

    // What is left of the text before a tag with this sign.
    std::string_view before_tag(std::string_view text, char sign, bool is_block) const {
        if (sign == '-') return strip_right(text);
        if (sign == '+' || !is_block) return text;
        const std::size_t line_start = text.rfind('\n') + 1;  // npos + 1 is 0
        const bool blank = (line_start > 0 || line_starting_) && strip_left(text.substr(line_start)).empty();
        return blank ? text.substr(0, line_start) : text;
    }

    // Text up to the next tag, then the tag.
    void between_tags() {
        std::size_t tag = at_;
        while (tag < in_.size() && !(in_[tag] == '{' && tag + 1 < in_.size() &&
                                     (in_[tag + 1] == '%' || in_[tag + 1] == '{' || in_[tag + 1] == '#'))) {
            ++tag;
        }
        std::string_view text = in_.substr(at_, tag - at_);
        if (tag < in_.size()) {
            text = before_tag(text, tag + 2 < in_.size() ? in_[tag + 2] : ' ', in_[tag + 1] != '{');
        }
        if (!text.empty()) push(Kind::text, std::string(text));
        const bool done = tag >= in_.size();
        move_to(tag);
        if (done) return;
        const char kind = in_[at_ + 1];
        at_ += 2;
        if (at_ < in_.size() && (in_[at_] == '-' || in_[at_] == '+')) ++at_;
        if (kind == '#') return comment();
        if (kind == '%' && raw()) return;
        push(kind == '%' ? Kind::block_begin : Kind::variable_begin, "");
        inside(kind == '%' ? "%}" : "}}", kind == '%');
    }

    // Behind a tag's end: what white space goes. `close` is where the closing mark starts.
    void close_tag(std::size_t close, bool trims_newline) {
        const char sign = close > 0 ? in_[close - 1] : ' ';
        std::size_t behind = close + 2;
        if (sign == '-') {
            behind = in_.size() - strip_left(in_.substr(behind)).size();
        } else if (trims_newline && sign != '+' && behind < in_.size() && in_[behind] == '\n') {
            ++behind;
        }
        move_to(behind);
        line_starting_ = in_[behind - 1] == '\n';
    }

    void comment() {
        const std::size_t close = in_.find("#}", at_);
        if (close == std::string_view::npos) fail("a comment is not closed");
        if (close == at_) {  // the sign before it, if any, was the opening one's
            move_to(close + 2 + (in_.substr(close + 2).starts_with('\n') ? 1 : 0));
            line_starting_ = in_[at_ - 1] == '\n';
            return;
        }
        close_tag(close, true);
    }

    // Where the tag whose inside begins at `from` is nothing but `word`: the place of its closing mark; npos:
    // it is not.
    std::size_t lone_word(std::size_t from, std::string_view word) const {
        std::string_view rest = strip_left(in_.substr(from));
        if (!rest.starts_with(word)) return std::string_view::npos;
        rest = strip_left(rest.substr(word.size()));
        if (rest.starts_with("-%}") || (word == "endraw" && rest.starts_with("+%}"))) rest.remove_prefix(1);
        return rest.starts_with("%}") ? in_.size() - rest.size() : std::string_view::npos;
    }

    // {% raw %}…{% endraw %}; trim_blocks does not look at its first tag.
    bool raw() {
        const std::size_t opened = lone_word(at_, "raw");
        if (opened == std::string_view::npos) return false;
        close_tag(opened, false);
        for (std::size_t tag = in_.find("{%", at_); tag != std::string_view::npos;
             tag = in_.find("{%", tag + 1)) {
            const char sign = tag + 2 < in_.size() ? in_[tag + 2] : ' ';
            const bool is_signed = sign == '-' || sign == '+';
            const std::size_t closed = lone_word(tag + 2 + (is_signed ? 1 : 0), "endraw");
            if (closed == std::string_view::npos) continue;
            const std::string_view text = before_tag(in_.substr(at_, tag - at_), sign, true);
            if (!text.empty()) push(Kind::text, std::string(text));
            close_tag(closed, true);
            return true;
        }
        fail("raw is not closed");
    }

    void inside(std::string_view close, bool block) {
        for (;;) {
            move_to(in_.size() - strip_left(in_.substr(at_)).size());
            if (at_ >= in_.size()) fail("a tag is not closed");
            const bool signed_end = (at("-") || (block && at("+"))) && in_.substr(at_ + 1, 2) == close;
            if (open_.empty() && (signed_end || at(close))) {
                push(block ? Kind::block_end : Kind::variable_end, "");
                return close_tag(at_ + (signed_end ? 1 : 0), block);
            }
            const char c = in_[at_];
            if (is_digit(c)) {
                number();
            } else if (c == '"' || c == '\'') {
                string(c);
            } else if (!word()) {
                sign();
            }
        }
    }

    // Whether there is a name here.
    bool word() {
        std::size_t end = at_;
        for (std::size_t next = end; end < in_.size(); end = next) {
            if (!is_word_character(next_code_point(in_, next))) break;
        }
        if (end == at_) return false;
        const std::string_view name = in_.substr(at_, end - at_);
        if (!is_identifier(name)) fail(fmt::format("invalid character in the name '{}'", shown(name)));
        push(Kind::name, std::string(name));
        at_ = end;
        return true;
    }

    // Digits of a base with single underscores between them, from `from` on; where they end.
    std::size_t digits(std::size_t from, unsigned base) const {
        const auto fits = [&](std::size_t i) {
            if (i >= in_.size()) return false;
            const char c = in_[i], low = static_cast<char>(c | 0x20);
            return (is_digit(c) && static_cast<unsigned>(c - '0') < base) ||
                   (base == 16 && low >= 'a' && low <= 'f');
        };
        while (fits(from) || (from > at_ && from < in_.size() && in_[from] == '_' && fits(from + 1))) ++from;
        return from;
    }

    // Behind a dot ("a.0.1") there are no fractions.
    std::size_t fraction(std::size_t end) const {
        if (at_ > 0 && in_[at_ - 1] == '.') return end;
        const auto digit_at = [this](std::size_t i) { return i < in_.size() && is_digit(in_[i]); };
        std::size_t at = end;
        if (at < in_.size() && in_[at] == '.' && digit_at(at + 1)) at = end = digits(at + 1, 10);
        if (at < in_.size() && (in_[at] | 0x20) == 'e') {
            const bool is_signed = at + 1 < in_.size() && (in_[at + 1] == '-' || in_[at + 1] == '+');
            if (digit_at(at + 1 + (is_signed ? 1 : 0))) end = digits(at + 1 + (is_signed ? 1 : 0), 10);
        }
        return end;
    }

    void number() {
        const std::size_t whole = digits(at_, 10);
        const std::size_t end = fraction(whole);
        if (end > whole) {
            push(Kind::real, plain_digits(end));
        } else if (const unsigned base = prefix(); base != 10) {
            const std::size_t from = at_ + (in_[at_ + 2] == '_' ? 3 : 2);
            push(Kind::integer, plain_digits(digits(from, base)));
            return;
        } else {
            std::string text = plain_digits(whole);
            if (text[0] == '0' && text.find_first_not_of('0') != std::string::npos) {
                fail("an integer with leading zeros: " + shown(text));
            }
            push(Kind::integer, std::move(text));
        }
    }

    std::string plain_digits(std::size_t end) {
        std::string text(in_.substr(at_, end - at_));
        std::erase(text, '_');
        at_ = end;
        return text;
    }

    // Of the number here: 16 behind 0x, 8 behind 0o, 2 behind 0b, else 10.
    unsigned prefix() const {
        if (in_[at_] != '0' || at_ + 2 >= in_.size()) return 10;
        const char kind = static_cast<char>(in_[at_ + 1] | 0x20);
        const unsigned base = kind == 'x' ? 16u : kind == 'o' ? 8u : kind == 'b' ? 2u : 10u;
        const std::size_t from = at_ + (in_[at_ + 2] == '_' ? 3 : 2);
        return base != 10 && digits(from, base) > from ? base : 10;
    }

    void string(char quote) {
        std::size_t end = at_ + 1;
        while (end < in_.size() && in_[end] != quote)
            end += in_[end] == '\\' ? std::size_t{2} : std::size_t{1};
        if (end >= in_.size()) fail("a string is not closed");
        try {
            push(Kind::string, unescape(in_.substr(at_ + 1, end - at_ - 1), clock_));
        } catch (const Error& error) {
            fail(error.what());
        }
        move_to(end + 1);
    }

    void sign() {
        for (const std::string_view two : {"==", "!=", "<=", ">=", "//", "**"}) {
            if (at(two)) {
                push(Kind::sign, std::string(two));
                at_ += 2;
                return;
            }
        }
        const char c = in_[at_];
        if (std::string_view("+-*/%~<>=()[]{},.:|;").find(c) == std::string_view::npos) {
            fail(fmt::format("unexpected character '{}'", c));
        }
        if (c == '(' || c == '[' || c == '{') open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
        if (c == ')' || c == ']' || c == '}') {
            if (!open_.ends_with(c)) fail(fmt::format("unexpected '{}'", c));
            open_.pop_back();
        }
        push(Kind::sign, std::string(1, c));
        ++at_;
    }

    std::string source_;
    std::string_view in_;
    const ThreadClock& clock_;
    std::size_t at_ = 0;
    int line_ = 1;
    std::string open_;  // brackets within the tag: what closes them
    bool line_starting_ = true;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const ThreadClock& clock) {
    return Lexer(source, clock).run();
}

}  // namespace tandem::tokenizer::jinja
