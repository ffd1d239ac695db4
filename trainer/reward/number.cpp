#include "trainer/reward/number.h"

#include <charconv>
#include <cmath>
#include <string>

namespace tandem::trainer {
namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Reads numbers from left to right.
class Reader {
  public:
    explicit Reader(std::string_view text) : text_(text) {}

    // The next number at or after the position; nothing when there is none.
    std::optional<double> next() {
        while (at_ < text_.size()) {
            if (!starts_number()) {
                ++at_;
                continue;
            }
            const bool negative = sign_before(at_);
            if (const auto value = read()) return negative ? -*value : *value;
        }
        return std::nullopt;
    }

  private:
    char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
    std::string_view before(std::size_t end) const { return text_.substr(0, end); }

    bool starts_number() const {
        if (is_digit(peek())) return true;
        return peek() == '.' && is_digit(peek(1)) && (at_ == 0 || !is_digit(text_[at_ - 1]));
    }

    // True when a minus precedes the number that starts at `start`, with or without a currency sign between.
    bool sign_before(std::size_t start) const {
        std::string_view head = before(start);
        if (const auto rest = minus_before(head)) return is_sign(*rest);
        for (const std::string_view currency : {"$", "€", "£", "¥"}) {
            if (!head.ends_with(currency)) continue;
            const auto rest = minus_before(head.substr(0, head.size() - currency.size()));
            return rest && is_sign(*rest);
        }
        return false;
    }
    static std::optional<std::string_view> minus_before(std::string_view head) {
        for (const std::string_view minus : {"-", "−"}) {
            if (head.ends_with(minus)) return head.substr(0, head.size() - minus.size());
        }
        return std::nullopt;
    }
    // A minus after an operand is a subtraction or a hyphen.
    static bool is_sign(std::string_view head) {
        return head.empty() || !(is_digit(head.back()) || is_letter(head.back()) || head.back() == ')');
    }

    // At a digit or at a point before one. Leaves the position behind what was read.
    std::optional<double> read() {
        const bool after_bar = at_ > 0 && text_[at_ - 1] == '/';
        bool whole = true;
        const auto first = decimal(whole);
        if (!whole || !first || after_bar) return first;
        if (const auto denominator = fraction_bar()) return *first / *denominator;
        return mixed(*first);
    }

    // Digits, grouped or not, and what may follow a point; `whole`: nothing did.
    std::optional<double> decimal(bool& whole) {
        std::string digits = grouped();
        whole = true;
        if (peek() == '.' && is_digit(peek(1))) {
            whole = false;
            ++at_;
            digits += '.';
            digits += plain();
        }
        const std::size_t sign = peek(1) == '-' || peek(1) == '+' ? 1 : 0;
        if ((peek() == 'e' || peek() == 'E') && is_digit(peek(1 + sign))) {
            whole = false;
            digits += 'e';
            if (peek(1) == '-') digits += '-';
            at_ += 1 + sign;
            digits += plain();
        }
        double value = 0;
        const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return result.ec == std::errc() && std::isfinite(value) ? std::optional(value) : std::nullopt;
    }

    std::string plain() {
        const std::size_t start = at_;
        while (is_digit(peek())) ++at_;
        return std::string(text_.substr(start, at_ - start));
    }
    bool group_follows() const {
        return peek() == ',' && is_digit(peek(1)) && is_digit(peek(2)) && is_digit(peek(3)) &&
               !is_digit(peek(4));
    }
    std::string grouped() {
        std::string digits = plain();
        if (digits.empty() || digits.size() > 3 || digits.front() == '0') return digits;
        while (group_follows()) {
            ++at_;
            digits += plain();
        }
        return digits;
    }

    // "/ whole" with at most a space on each side; nothing, and no step, where there is none.
    std::optional<double> fraction_bar() {
        const std::size_t start = at_;
        if (peek() == ' ' && peek(1) == '/') ++at_;
        if (peek() == '/') {
            ++at_;
            if (peek() == ' ') ++at_;
            bool whole = true;
            if (is_digit(peek())) {
                const auto value = decimal(whole);
                if (value && whole && *value > 0 && peek() != '/') return value;  // 1/2/2024 is a date
            }
        }
        at_ = start;
        return std::nullopt;
    }
    // "1" before " 1/2".
    double mixed(double first) {
        const std::size_t start = at_;
        if (peek() == ' ' && is_digit(peek(1))) {
            ++at_;
            bool whole = true;
            const auto numerator = decimal(whole);
            if (numerator && whole) {
                const auto denominator = fraction_bar();
                if (denominator && *numerator < *denominator) return first + *numerator / *denominator;
            }
        }
        at_ = start;
        return first;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

}  // namespace

std::optional<double> final_number(std::string_view text) {
    constexpr std::string_view kMark = "####";
    if (const std::size_t mark = text.rfind(kMark); mark != std::string_view::npos) {
        return Reader(text.substr(mark + kMark.size())).next();
    }
    Reader reader(text);
    std::optional<double> last;
    while (const auto number = reader.next()) last = number;
    return last;
}

}  // namespace tandem::trainer
