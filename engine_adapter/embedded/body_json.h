// The body of a request as JSON: bounded before it is parsed, and told where it is none.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tandem::engine {

// The body as a JSON object; an empty body is an empty object. Throws BadInput: it is too deep or holds too many values,
// is not JSON (naming line and column, both from 1, the column in characters), or is no object.
nlohmann::json parse_body(const std::string& body);

// Refuses keys that are none of `known`, unless their values ask for nothing (null, false, 0, "", [] and {}): what is not
// read would be ignored. Throws BadInput naming the key.
void check_keys(const nlohmann::json& body, std::initializer_list<std::string_view> known);

// The value of a key, or null.
const nlohmann::json& field(const nlohmann::json& body, const char* key);

}  // namespace tandem::engine
