// JSON as Python's json module reads it: integers keep their value, 1e400 is infinite, NaN and Infinity are
// numbers, the last of equal keys counts.
#pragma once

#include <string_view>

#include "common/tokenizer/jinja/value.h"

namespace tandem::tokenizer::jinja {

// Throws BadInput with line and column: not JSON, nested deeper than values may be, or an integer of more
// than 128 bits.
Value read_json(Runtime& runtime, std::string_view text);
Value read_json(std::string_view text);

}  // namespace tandem::tokenizer::jinja
