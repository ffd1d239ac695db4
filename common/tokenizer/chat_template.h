// The chat template of a model directory: a conversation into the text that the model was trained on.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "common/tokenizer/jinja/template.h"
#include "common/tokenizer/special_tokens.h"

namespace tandem::tokenizer {

class ChatTemplate {
  public:
    // Throws ConfigError with the line of what is wrong in the template.
    explicit ChatTemplate(const SpecialTokens& special);

    // "bos_token" and the like, where the template cannot do without.
    const std::set<std::string>& roles() const { return roles_; }

    // messages: a list of objects; options: an object with tools and whatever else the template reads.
    // Throws BadInput where the template refuses the conversation, ConfigError where it fails.
    std::string render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                       const nlohmann::ordered_json& options) const;

  private:
    const std::string file_;
    const std::map<std::string, std::string, std::less<>> by_role_;
    jinja::Template template_;
    std::set<std::string> roles_;
};

}  // namespace tandem::tokenizer
