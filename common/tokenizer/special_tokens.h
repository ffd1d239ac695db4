// The tokens with a role: bos_token, eos_token, … of tokenizer_config.json, or of special_tokens_map.json
// where the former is silent; and the text of the chat template.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::tokenizer {

struct SpecialTokens {
    std::map<std::string, std::string, std::less<>> by_role;  // "bos_token" → "<s>"
    std::string chat_template;                                // empty: none
    std::string chat_template_file;                           // where it was found
    std::string file;                                         // tokenizer_config.json

    // "bos" or "bos_token"
    std::optional<std::string> find(std::string_view role) const;
};

// All files are optional. Throws ConfigError where one is malformed.
SpecialTokens read_special_tokens(const std::string& directory);

}  // namespace tandem::tokenizer
