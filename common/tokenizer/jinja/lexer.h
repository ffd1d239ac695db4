// A template's text into tokens, with the white space already gone that its marks, trim_blocks and
// lstrip_blocks take away.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/tokenizer/jinja/thread_clock.h"

namespace tandem::tokenizer::jinja {

constexpr std::size_t kMostBytes = std::size_t{4} << 20;  // of a template
constexpr std::size_t kMostTokens = std::size_t{1}
                                    << 20;  // some hundred bytes each, with what is made of them

struct Token {
    enum class Kind : std::uint8_t {
        text,            // between tags
        block_begin,     // {%
        block_end,       // %}
        variable_begin,  // {{
        variable_end,    // }}
        name,
        string,
        integer,
        real,
        sign,  // operators and brackets
        end
    };
    Kind kind = Kind::end;
    std::string text;
    int line = 1;
};

// trim_blocks: a newline right behind %} or #} goes. lstrip_blocks: blanks from a line's start to {% or {#
// go. One newline at the template's end goes. As transformers sets up jinja2. Throws Error with the line; more tokens than
// kMostTokens, or than the clock gives time for.
std::vector<Token> tokenize(std::string_view source, const ThreadClock& clock);

}  // namespace tandem::tokenizer::jinja
