// What third-party servers are told that their weights are: a text. Ours are decimal numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tandem::engine {

// Before a number: what the server holds is in no one's hands, until a push of that version or a later one ends.
inline constexpr std::string_view kLoading = "loading ";

// The highest version that a push has brought to its end. 0: none, or a text of somebody else's ("default" at the
// start).
std::int64_t number_of(std::string_view version);

// Of a server that a push paused, and whose weights it left alone: `tell_version` tells it its old version, and `resume`
// lets it go on, whether it could be told or not. Then throws what telling it threw.
void resume_as_before(const std::function<void()>& tell_version, const std::function<void()>& resume);

// Throws ProtocolError naming the server unless what it says of itself is that version.
void require_said(const std::string& server, const std::string& says, std::int64_t version);

// Logs that nothing is served until the next push, and why.
void log_left_paused(const std::string& server, const std::string& reason);

}  // namespace tandem::engine
