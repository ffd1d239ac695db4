// Reads the numbers of a text from left to right. The grammar is number.h's; the text is plain_latex()'s.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/reward/number.h"

namespace tandem::trainer {

class NumberReader {
  public:
    explicit NumberReader(std::string_view text) : text_(text) {}

    // The number that the whole text is, with its unit; nothing when it is no number or more than one.
    std::optional<Number> whole();

    // A number, or a formula that is none although numbers are part of it.
    struct Found {
        std::optional<Number> number;
    };
    // The next one at or after the position; nothing when there is none.
    std::optional<Found> next();

  private:
    char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
    std::string_view rest() const { return text_.substr(at_); }
    bool eat(std::string_view word);
    bool eat_command(std::string_view name);  // \name, and not a longer one
    void skip_spaces();

    // Plain numbers: each starts at a digit or at a point before one, and leaves the position behind what it
    // read.
    bool starts_plain() const;
    std::optional<Number> plain();
    std::optional<Number> decimal(bool& whole);
    std::string digits();
    std::string grouped_digits();
    std::optional<Number> denominator();
    Number mixed(const Number& first);

    // LaTeX: each leaves the position behind what it read also when that is no number.
    bool at_latex() const;
    std::optional<Number> term();
    std::optional<Number> signed_term(bool framed);
    std::optional<std::optional<Number>> fraction_behind();
    std::optional<Number> mixed_with(const Number& first, std::size_t start,
                                     const std::optional<Number>& part) const;
    bool has_command(std::size_t start) const;  // from there to the position
    std::optional<Number> fraction();
    std::optional<Number> root();
    std::optional<Number> argument(bool framed);
    std::optional<Number> divided(std::optional<Number> value);
    void unit();

    std::string_view text_;
    std::size_t at_ = 0;
    std::size_t latex_end_ = std::string_view::npos;  // of the last term of LaTeX
    int depth_ = 0;
};

}  // namespace tandem::trainer
