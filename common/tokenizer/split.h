// The fate of a delimiter when pieces are split at it: tokenizers' SplitDelimiterBehavior.
#pragma once

#include <functional>

#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/regex.h"

namespace tandem::tokenizer {

//                       "a--b" at "-"
//   removed             a, b
//   isolated            a, -, -, b
//   merged_previous     a-, -, b
//   merged_next         a, -, -b
//   contiguous          a, --, b
enum class Behavior : std::uint8_t { removed, isolated, merged_previous, merged_next, contiguous };

Behavior read_behavior(const JsonField& field);

using Matcher = std::function<void(std::string_view, std::vector<Match>&)>;
void split_pieces(Pieces& pieces, const Matcher& matcher, Behavior behavior);

// Each character that `wanted` accepts is a match of its own.
void match_characters(std::string_view text, bool (*wanted)(char32_t), std::vector<Match>& matches);

}  // namespace tandem::tokenizer
