// Text of strangers (a server's answer, a name in a file, another program's log) on its way to a terminal or a log.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// The same text, harmless: control characters (so escape sequences), characters that turn the direction of writing and
// bytes that are not UTF-8 become \xNN or \u{NNNN}; tabs stay. Lines after the first are indented by two spaces, so
// that none looks like a line of ours.
std::string printable(std::string_view text);
// Whether all of it is UTF-8.
bool is_utf8(std::string_view text);

}  // namespace tandem
