#include "trainer/reward/latex.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tandem::trainer {
namespace {

constexpr std::size_t kLongestGroup = 4096;

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr auto kFractions = std::to_array<std::string_view>({"dfrac", "tfrac", "cfrac"});
constexpr auto kFonts = std::to_array<std::string_view>(
    {"text", "textrm", "textbf", "textit", "mathrm", "mathbf", "mathit", "mathsf", "mbox"});
constexpr auto kSpaces =
    std::to_array<std::string_view>({"quad", "qquad", "displaystyle", "textstyle", "space", "enspace"});
constexpr auto kProducts = std::to_array<std::string_view>({"cdot", "times"});

bool digit(char c) {
    return c >= '0' && c <= '9';
}

class Rewriter {
  public:
    explicit Rewriter(std::string_view text) : text_(text) {}

    std::string run() {
        while (at_ < text_.size()) step();
        return std::move(out_);
    }

  private:
    char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
    std::string_view rest() const { return text_.substr(at_); }
    bool three_digits_at(std::size_t ahead) const {
        return digit(peek(ahead)) && digit(peek(ahead + 1)) && digit(peek(ahead + 2)) &&
               !digit(peek(ahead + 3));
    }
    bool after_digit() const { return !out_.empty() && digit(out_.back()); }

    void step() {
        if (peek() == '\\') return command();
        if (rest().starts_with("{,}") && after_digit() && three_digits_at(3)) {
            out_ += ',';
            at_ += 3;
        } else if (peek() == '^' && degrees()) {
            out_ += "°";
        } else {
            out_ += text_[at_++];
        }
    }

    // "^\circ", "^{\circ}": steps behind it.
    bool degrees() {
        for (const std::string_view form : {"^\\circ", "^{\\circ}", "^{\\circ }", "^\\degree"}) {
            if (!rest().starts_with(form)) continue;
            at_ += form.size();
            return true;
        }
        return false;
    }

    void command() {
        std::size_t end = at_ + 1;
        while (end < text_.size() && ((text_[end] | 0x20) >= 'a' && (text_[end] | 0x20) <= 'z')) ++end;
        if (end == at_ + 1) return symbol();
        const std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
        const std::size_t start = std::exchange(at_, end);
        if (is_one_of(kFractions, name)) {
            out_ += "\\frac";
        } else if (is_one_of(kFonts, name)) {
            out_ += "\\text";
        } else if (is_one_of(kSpaces, name)) {
            out_ += ' ';
        } else if (is_one_of(kProducts, name)) {
            out_ += "\\cdot";
        } else if (name == "degree") {
            out_ += "°";
        } else if (name == "left" || name == "right") {
            if (peek() == '.') ++at_;  // the delimiter that is none
        } else {
            out_ += text_.substr(start, end - start);
        }
    }

    void symbol() {
        const char c = peek(1);
        at_ = std::min(at_ + 2, text_.size());
        switch (c) {
            case '!':
                return;
            case '$':
            case '%':
                out_ += c;
                return;
            case ',':
            case ' ':
                out_ += after_digit() && three_digits_at(0) ? ',' : ' ';
                return;
            case ';':
            case ':':
            case '(':
            case ')':
            case '[':
            case ']':
                out_ += ' ';
                return;
            case '\0':
                out_ += '\\';
                return;
            default:
                out_ += {'\\', c};
        }
    }

    std::string_view text_;
    std::size_t at_ = 0;
    std::string out_;
};

}  // namespace

std::string plain_latex(std::string_view text) {
    if (text.find('\\') == std::string_view::npos && text.find("{,}") == std::string_view::npos)
        return std::string(text);
    return Rewriter(text).run();
}

std::string_view braced(std::string_view text, std::size_t open) {
    int depth = 0;
    const std::size_t end = std::min(text.size(), open + kLongestGroup);
    for (std::size_t i = open; i < end; ++i) {
        if (text[i] == '\\') {
            ++i;  // \{ and \} are no braces
        } else if (text[i] == '{') {
            ++depth;
        } else if (text[i] == '}' && --depth == 0) {
            return text.substr(open + 1, i - open - 1);
        }
    }
    return {};
}

}  // namespace tandem::trainer
