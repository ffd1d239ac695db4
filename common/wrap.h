// Long text as lines of a width, for terminals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

constexpr std::size_t kTerminalColumns = 100;  // that what programs print for people fits into

// Code points of UTF-8.
std::size_t characters(std::string_view text);

// Breaks lines at spaces, so that each is of at most `columns` characters; a longer word has a line
// of its own. Lines after the first begin with `indent` spaces, which are not counted. Breaks of the text itself stay.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent = 0);

}  // namespace tandem
