// Opens pickles of protocol 4 without Python, for tests: as JSON. A global is {"global": "module.name"}, a call
// {"call": "module.name", "arguments": […]}, bytes are binary values, tuples and lists arrays.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tandem::test {

// Throws Error: an opcode that is not known here, what is cut off, or what does not fit together.
nlohmann::json unpickle(std::string_view pickle);

// Throws Error where it is not base64 with padding.
std::string from_base64(std::string_view text);

}  // namespace tandem::test
