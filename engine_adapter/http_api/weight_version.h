// What servers of others are told that their weights are: a text. Ours are decimal numbers.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem::engine {

// Before a number: what the server holds is in no one's hands, until a push of that version or a later one ends.
inline constexpr std::string_view kLoading = "loading ";

// The highest version that a push has brought to its end. 0: none, or a text of somebody else's ("default" at the
// start).
std::int64_t number_of(std::string_view version);

}  // namespace tandem::engine
