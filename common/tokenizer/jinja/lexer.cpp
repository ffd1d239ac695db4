#include "common/tokenizer/jinja/lexer.h"

#include <cctype>
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

bool starts_name(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
}
bool continues_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

class Lexer {
  public:
    explicit Lexer(std::string_view source) : source_(plain_newlines(source)), in_(source_) {}

    std::vector<Token> run() {
        while (at_ < in_.size()) between_tags();
        push(Kind::end, "");
        return std::move(tokens_);
    }

  private:
    [[noreturn]] void fail(std::string_view message) const {
        throw Error(fmt::format("line {}: {}", line_, message));
    }
    void push(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
    bool at(std::string_view text) const { return in_.substr(at_, text.size()) == text; }
    void move_to(std::size_t to) {
        for (; at_ < to; ++at_) line_ += in_[at_] == '\n' ? 1 : 0;
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
            const char kind = in_[tag + 1], sign = tag + 2 < in_.size() ? in_[tag + 2] : ' ';
            if (sign == '-') {
                text = strip_right(text);
            } else if (sign != '+' && kind != '{') {
                const std::size_t line_start = text.rfind('\n') + 1;  // npos + 1 is 0
                if ((line_start > 0 || line_starting_) && strip_left(text.substr(line_start)).empty()) {
                    text = text.substr(0, line_start);
                }
            }
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
        close_tag(close, true);
    }

    // {% raw %}…{% endraw %}
    bool raw() {
        const auto keyword = [this](std::size_t from, std::string_view word, std::size_t& close) {
            std::string_view rest = strip_left(in_.substr(from));
            if (!rest.starts_with(word)) return false;
            rest = strip_left(rest.substr(word.size()));
            if (rest.starts_with('-') || rest.starts_with('+')) rest.remove_prefix(1);
            close = in_.size() - rest.size();
            return rest.starts_with("%}");
        };
        std::size_t close = 0;
        if (!keyword(at_, "raw", close)) return false;
        close_tag(close, true);
        for (std::size_t tag = in_.find("{%", at_); tag != std::string_view::npos;
             tag = in_.find("{%", tag + 2)) {
            const bool strips = tag + 2 < in_.size() && in_[tag + 2] == '-';
            if (!keyword(tag + 2 + (strips ? 1 : 0), "endraw", close)) continue;
            const std::string_view text = in_.substr(at_, tag - at_);
            push(Kind::text, std::string(strips ? strip_right(text) : text));
            close_tag(close, true);
            return true;
        }
        fail("raw is not closed");
    }

    void inside(std::string_view close, bool block) {
        for (;;) {
            while (at_ < in_.size() && std::isspace(static_cast<unsigned char>(in_[at_]))) move_to(at_ + 1);
            if (at_ >= in_.size()) fail("a tag is not closed");
            const bool signed_end = (at("-") || (block && at("+"))) && in_.substr(at_ + 1, 2) == close;
            if (open_ == 0 && (signed_end || at(close))) {
                push(block ? Kind::block_end : Kind::variable_end, "");
                return close_tag(at_ + (signed_end ? 1 : 0), block);
            }
            const char c = in_[at_];
            if (starts_name(c)) {
                word();
            } else if (std::isdigit(static_cast<unsigned char>(c))) {
                number();
            } else if (c == '"' || c == '\'') {
                string(c);
            } else {
                sign();
            }
        }
    }

    void word() {
        std::size_t end = at_;
        while (end < in_.size() && continues_name(in_[end])) ++end;
        push(Kind::name, std::string(in_.substr(at_, end - at_)));
        at_ = end;
    }

    void number() {
        std::size_t end = at_;
        bool real = false;
        const auto digits = [&] {
            while (end < in_.size() &&
                   (std::isdigit(static_cast<unsigned char>(in_[end])) || in_[end] == '_'))
                ++end;
        };
        digits();
        const auto digit_at = [&](std::size_t i) {
            return i < in_.size() && std::isdigit(static_cast<unsigned char>(in_[i]));
        };
        if (end < in_.size() && in_[end] == '.' && digit_at(end + 1)) {
            real = true;
            ++end;
            digits();
        }
        if (end < in_.size() && (in_[end] == 'e' || in_[end] == 'E')) {
            const std::size_t sign =
                end + 1 < in_.size() && (in_[end + 1] == '-' || in_[end + 1] == '+') ? 2 : 1;
            if (digit_at(end + sign)) {
                real = true;
                end += sign;
                digits();
            }
        }
        std::string text(in_.substr(at_, end - at_));
        std::erase(text, '_');
        if (!real && text[0] == '0' && text.find_first_not_of('0') != std::string::npos) {
            fail("an integer with leading zeros: " + text);
        }
        push(real ? Kind::real : Kind::integer, std::move(text));
        at_ = end;
    }

    void string(char quote) {
        std::size_t end = at_ + 1;
        while (end < in_.size() && in_[end] != quote)
            end += in_[end] == '\\' ? std::size_t{2} : std::size_t{1};
        if (end >= in_.size()) fail("a string is not closed");
        push(Kind::string, unescape(in_.substr(at_ + 1, end - at_ - 1)));
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
        if (std::string_view("+-*/%~<>=()[]{},.:|").find(c) == std::string_view::npos) {
            fail(fmt::format("unexpected character '{}'", c));
        }
        if (c == '(' || c == '[' || c == '{') ++open_;
        if (c == ')' || c == ']' || c == '}') {
            if (open_-- == 0) fail(fmt::format("unexpected '{}'", c));
        }
        push(Kind::sign, std::string(1, c));
        ++at_;
    }

    std::string source_;
    std::string_view in_;
    std::size_t at_ = 0;
    int line_ = 1;
    int open_ = 0;  // brackets within the tag
    bool line_starting_ = true;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
    return Lexer(source).run();
}

}  // namespace tandem::tokenizer::jinja
