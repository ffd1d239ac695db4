// The tokens with a role: bos_token, eos_token, … of tokenizer_config.json, or of special_tokens_map.json
// where the former is silent; and the texts of the chat templates.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::tokenizer {

struct TemplateText {
    std::string text, file;  // where it was found
};

struct SpecialTokens {
    std::map<std::string, std::string, std::less<>>
        by_role;  // "bos_token" → "<s>"; null and absent ones are not there
    // By name, as transformers 5 reads them: "default", "tool_use", … One without a name is "default".
    // chat_template.jinja and additional_chat_templates/NAME.jinja go before the whole of
    // tokenizer_config.json.
    std::map<std::string, TemplateText> templates;
    std::string file;  // tokenizer_config.json

    // "bos" or "bos_token"
    std::optional<std::string> find(std::string_view role) const;
};

// All files are optional. Throws ConfigError where one is malformed.
SpecialTokens read_special_tokens(const std::string& directory);

}  // namespace tandem::tokenizer
