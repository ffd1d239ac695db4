// Numbers as the specifications of Python's format() and of its % write them.
#pragma once

#include "common/tokenizer/jinja/text.h"

namespace tandem::tokenizer::jinja {

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct FormatSpec {
    std::string fill = " ";
    char align = '\0';  // < > ^ =, or none
    char sign = '-';    // - + or a space
    bool alternate = false;
    std::size_t width = 0;
    char grouping = '\0';  // , or _
    std::optional<int> precision;
    char type = '\0';
};
// Throws Error: not a specification.
FormatSpec parse_spec(std::string_view text);

struct NumberText {
    std::string sign, prefix, digits;
};
// b o d x X; Throws Error for other types.
NumberText integer_text(Integer value, const FormatSpec& spec);
// e E f F g G %, or none: as repr, with the precision where there is one.
NumberText real_text(double value, const FormatSpec& spec);
// The number in its width; `align` where the specification has none.
void pad_number(Text& out, const NumberText& number, const FormatSpec& spec);
void pad_text(Text& out, std::string_view text, const FormatSpec& spec, char align);

}  // namespace tandem::tokenizer::jinja
