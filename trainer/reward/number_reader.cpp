#include "trainer/reward/number_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

#include "trainer/reward/arithmetic.h"
#include "trainer/reward/latex.h"
#include "trainer/reward/surroundings.h"
#include "trainer/reward/unit_words.h"

namespace tandem::trainer {
namespace {

constexpr std::size_t kMostDigits = 4096;
constexpr int kDeepest = 16;  // of fractions and roots in each other

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
std::string_view trimmed_end(std::string_view text) {
    while (text.ends_with(' ')) text.remove_suffix(1);
    return text;
}

// digits [.digits] [e[-]digits]
std::optional<Number> number_of(const std::string& text, bool whole) {
    Number result{0, std::nullopt, !whole};
    const auto read = std::from_chars(text.data(), text.data() + text.size(), result.value);
    const bool fits = read.ec == std::errc() && std::isfinite(result.value);
    if (text.size() > kMostDigits || (!fits && !whole)) return std::nullopt;
    if (!fits) result.value = std::numeric_limits<double>::infinity();

    const std::size_t e = std::min(text.find('e'), text.size());
    std::string digits = text.substr(0, e);
    std::int64_t exponent = 0;
    if (e < text.size()) std::from_chars(text.data() + e + 1, text.data() + text.size(), exponent);
    if (const std::size_t point = digits.find('.'); point != std::string::npos) {
        if (e == text.size()) result.decimal = digits.find_first_not_of('0', point + 1) != std::string::npos;
        exponent -= static_cast<std::int64_t>(digits.size() - point - 1);
        digits.erase(point, 1);
    }
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));  // 0… would be octal
    result.exact.emplace();
    result.exact->above.assign(digits);
    if (result.exact->above == 0) return result;
    if (std::abs(exponent) > static_cast<std::int64_t>(kMostDigits)) return std::nullopt;
    const Fraction::Whole shift = pow(Fraction::Whole(10), static_cast<unsigned>(std::abs(exponent)));
    (exponent < 0 ? result.exact->below : result.exact->above) *= shift;
    return result;
}

}  // namespace

bool NumberReader::eat(std::string_view word) {
    if (!rest().starts_with(word)) return false;
    at_ += word.size();
    return true;
}

bool NumberReader::eat_command(std::string_view name) {
    return starts_command(rest(), name) && eat(name);
}

void NumberReader::skip_spaces() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\t') ++at_;
}

// --- plain numbers

bool NumberReader::starts_plain() const {
    if (is_digit(peek())) return true;
    return peek() == '.' && is_digit(peek(1)) && (at_ == 0 || !is_digit(text_[at_ - 1]));
}

std::optional<Number> NumberReader::plain() {
    const bool after_bar = at_ > 0 && text_[at_ - 1] == '/';
    bool whole = true;
    const auto first = decimal(whole);
    if (!whole || !first || after_bar) return first;
    if (const auto below = denominator()) return over(*first, *below);
    return mixed(*first);
}

// Digits, grouped or not, and what may follow a point; `whole`: nothing did.
std::optional<Number> NumberReader::decimal(bool& whole) {
    std::string written = grouped_digits();
    whole = true;
    if (peek() == '.' && is_digit(peek(1))) {
        whole = false;
        ++at_;
        written += '.';
        written += digits();
    }
    const std::size_t sign = peek(1) == '-' || peek(1) == '+' ? 1 : 0;
    if ((peek() == 'e' || peek() == 'E') && is_digit(peek(1 + sign))) {
        whole = false;
        written += 'e';
        if (peek(1) == '-') written += '-';
        at_ += 1 + sign;
        written += digits();
    }
    return number_of(written, whole);
}

std::string NumberReader::digits() {
    const std::size_t start = at_;
    while (is_digit(peek())) ++at_;
    return std::string(text_.substr(start, at_ - start));
}

std::string NumberReader::grouped_digits() {
    std::string result = digits();
    if (result.empty() || result.size() > 3 || result.front() == '0') return result;
    while (peek() == ',' && is_digit(peek(1)) && is_digit(peek(2)) && is_digit(peek(3)) &&
           !is_digit(peek(4))) {
        ++at_;
        result += digits();
    }
    return result;
}

// "/ whole" with at most a space on each side; nothing, and no step, where there is none.
std::optional<Number> NumberReader::denominator() {
    const std::size_t start = at_;
    if (peek() == ' ' && peek(1) == '/') ++at_;
    if (peek() == '/') {
        ++at_;
        if (peek() == ' ') ++at_;
        bool whole = true;
        if (is_digit(peek())) {
            const auto value = decimal(whole);
            if (value && whole && value->value > 0 && peek() != '/') return value;  // 1/2/2024 is a date
        }
    }
    at_ = start;
    return std::nullopt;
}

// "1" before " 1/2".
Number NumberReader::mixed(const Number& first) {
    const std::size_t start = at_;
    if (peek() == ' ' && is_digit(peek(1))) {
        ++at_;
        bool whole = true;
        const auto above = decimal(whole);
        if (above && whole) {
            const auto below = denominator();
            if (below && above->value < below->value) {
                const auto part = over(*above, *below);
                if (const auto sum = part ? plus(first, *part) : std::nullopt) return *sum;
            }
        }
    }
    at_ = start;
    return first;
}

// --- LaTeX

bool NumberReader::at_latex() const {
    return starts_command(rest(), "\\frac") || starts_command(rest(), "\\sqrt");
}

// A number without its sign: a plain one, a fraction, a mixed number, or a product with roots.
std::optional<Number> NumberReader::term() {
    const std::size_t start = at_;
    std::optional<Number> value;
    if (starts_plain()) {
        value = plain();
        if (const auto part = fraction_behind())
            return value ? mixed_with(*value, start, *part) : std::nullopt;
    } else if (eat_command("\\frac")) {
        value = fraction();
    } else if (at_latex()) {
        value = Number{1, Fraction{1, 1}, false};
    } else {
        return std::nullopt;
    }
    for (;;) {
        const std::size_t end = at_;
        skip_spaces();
        if (eat_command("\\cdot") || eat("*") || eat("·") || eat("×")) skip_spaces();
        if (!starts_command(rest(), "\\sqrt")) {
            at_ = end;
            return has_command(start) ? divided(value) : value;
        }
        const bool ambiguous =
            text_.substr(start, end - start).find('/') != std::string_view::npos;  // 3/4\sqrt{2}
        const auto factor = root();
        value = value && factor && !ambiguous ? times(*value, *factor) : std::nullopt;
    }
}

bool NumberReader::has_command(std::size_t start) const {
    return text_.substr(start, at_ - start).find('\\') != std::string_view::npos;
}

// The \frac{…}{…} that follows; the inner one is nothing when it is no number.
std::optional<std::optional<Number>> NumberReader::fraction_behind() {
    const std::size_t end = at_;
    skip_spaces();
    if (eat_command("\\frac")) return fraction();
    at_ = end;
    return std::nullopt;
}

// 2\frac{1}{2}: `first` began at `start`.
std::optional<Number> NumberReader::mixed_with(const Number& first, std::size_t start,
                                               const std::optional<Number>& part) const {
    const std::size_t end = text_.find('\\', start);
    const std::string_view written = trimmed_end(text_.substr(start, end - start));
    const bool whole = std::all_of(written.begin(), written.end(), is_digit);
    const bool proper = part && part->exact && !part->decimal && part->value > 0 && part->value < 1;
    return whole && proper ? plus(first, *part) : std::nullopt;
}

// "/ whole" behind a term of LaTeX.
std::optional<Number> NumberReader::divided(std::optional<Number> value) {
    const auto below = denominator();
    return value && below ? over(*value, *below) : value;
}

// `framed`: it may stand in \boxed{…} or \text{…}.
std::optional<Number> NumberReader::signed_term(bool framed) {
    skip_spaces();
    for (const std::string_view frame : {"\\boxed", "\\fbox", "\\text"}) {
        if (framed && eat_command(frame)) return argument(true);
    }
    bool minus = false;
    const auto sign = [&] {
        minus = eat("-") || eat("−");
        if (!minus && !eat("+")) return;
        const std::size_t end = at_;
        skip_spaces();
        if (peek() != '\\') at_ = end;  // "- 5" is an item of a list
    };
    sign();
    const bool currency = eat("$") || eat("€") || eat("£") || eat("¥");
    if (currency && !minus) sign();
    const auto value = term();
    return value && minus ? std::optional(negative(*value)) : value;
}

// Behind \frac.
std::optional<Number> NumberReader::fraction() {
    const auto above = argument(false);
    const auto below = argument(false);
    return above && below ? over(*above, *below) : std::nullopt;
}

// At \sqrt.
std::optional<Number> NumberReader::root() {
    eat_command("\\sqrt");
    unsigned index = 2;
    bool known = true;
    skip_spaces();
    if (peek() == '[') {
        const std::size_t end = std::min(text_.find(']', at_), text_.size());
        const std::string_view written = text_.substr(at_ + 1, end - std::min(end, at_ + 1));
        const auto read = std::from_chars(written.data(), written.data() + written.size(), index);
        known = read.ec == std::errc() && read.ptr == written.data() + written.size() && index >= 2 &&
                index <= 64;
        at_ = std::min(end + 1, text_.size());
    }
    const auto radicand = argument(false);
    return known && radicand ? root_of(*radicand, index) : std::nullopt;
}

// "{number}", or as TeX has it without braces one digit or one command.
std::optional<Number> NumberReader::argument(bool framed) {
    skip_spaces();
    if (depth_ == kDeepest) return std::nullopt;
    if (is_digit(peek())) return number_of(std::string(1, text_[at_++]), true);
    if (at_latex()) {
        ++depth_;
        const auto value = eat_command("\\frac") ? fraction() : root();
        --depth_;
        return value;
    }
    if (peek() != '{') return std::nullopt;
    const std::string_view group = braced(text_, at_);
    if (group.data() == nullptr) {
        ++at_;
        return std::nullopt;
    }
    at_ += group.size() + 2;
    NumberReader inner(group);
    inner.depth_ = depth_ + 1;
    const auto value = inner.signed_term(framed);
    if (framed) inner.unit();
    inner.skip_spaces();
    return inner.rest().empty() ? value : std::nullopt;
}

std::optional<Number> NumberReader::whole() {
    const auto value = signed_term(true);
    unit();
    if (peek() == '.' || peek() == ',') ++at_;
    skip_spaces();
    return rest().empty() ? value : std::nullopt;
}

void NumberReader::unit() {
    at_ += unit_length(rest());
}

// --- numbers in free text

std::optional<NumberReader::Found> NumberReader::next() {
    while (at_ < text_.size()) {
        const std::size_t start = at_;
        const bool latex = at_latex();
        if (!latex && !starts_plain()) {
            ++at_;
            continue;
        }
        const bool minus = minus_before(text_, start, latex);
        const bool inside = inside_formula(text_, start, latex_end_);
        const auto value = term();
        const bool grown = has_command(start);
        if (grown) latex_end_ = at_;
        if (!value && !grown) continue;  // beyond all bounds
        if (!value || inside || formula_goes_on(rest(), grown)) return Found{};
        return Found{minus ? negative(*value) : *value};
    }
    return std::nullopt;
}

}  // namespace tandem::trainer
