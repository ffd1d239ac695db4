// Lines of a width, as Python's textwrap makes them for the filter wordwrap.
#pragma once

#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {

struct WrapStyle {
    Integer width = 79;
    bool breaks_long_words = true;
    bool breaks_at_hyphens = true;  // refused where the text has hyphens
};
void wrap(Runtime& runtime, std::string_view line, const WrapStyle& style, const Part& piece);

}  // namespace tandem::tokenizer::jinja
