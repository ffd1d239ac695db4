// Values of the configuration: what a key allows, in words, and how a value is written. Inside config only.
#pragma once

#include <string>

#include "common/config.h"

namespace tandem::config {

Value current(const Key& key);
std::string to_text(const Value& value);                    // as TOML writes it
std::string joined(const std::vector<std::string>& words);  // "a, b"
std::string allowed(const Key& key);                        // "a whole number from 1 to 1024"
std::string type_name(const Key& key);                      // "integer"
bool is_number(const Key& key);
// The value as the key's type, or a message that says what is wrong with it.
std::variant<Value, std::string> checked(const Key& key, const Value& value);

}  // namespace tandem::config
