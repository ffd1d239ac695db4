// Looking for a text in another one, and cutting one up: charged while it goes on.
#pragma once

#include <optional>
#include <string_view>

#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {

// Where `wanted` begins in the text, the first from `from` on or the last of all; npos: nowhere.
std::size_t find_first(Runtime& runtime, std::string_view text, std::string_view wanted,
                       std::size_t from = 0);
std::size_t find_last(Runtime& runtime, std::string_view text, std::string_view wanted);

// str.split; right: str.rsplit, whose parts come from the last to the first. Without a separator at runs of
// white space, no empty parts. most: cuts; negative: any number.
void split(Runtime& runtime, std::string_view text, std::optional<std::string_view> separator,
           std::int64_t most, const Part& part);
void split_right(Runtime& runtime, std::string_view text, std::optional<std::string_view> separator,
                 std::int64_t most, const Part& part);

}  // namespace tandem::tokenizer::jinja
