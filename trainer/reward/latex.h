// LaTeX's many spellings of one thing, as one.
#pragma once

#include <string>
#include <string_view>

namespace tandem::trainer {

// The text with \dfrac and \tfrac as \frac, fonts as \text, \left and \right gone, \$ \% as $ %, spaces and
// math delimiters as spaces, grouped digits (1{,}234, 1,\!234, 1\,234) with commas, ^\circ as °. Text without
// a backslash stays as it is.
std::string plain_latex(std::string_view text);

// The text between the brace at `open` and its partner; the partner's place is `open` + size + 1. Nothing
// (data() is null) without a partner within 4,096 bytes.
std::string_view braced(std::string_view text, std::size_t open);

}  // namespace tandem::trainer
