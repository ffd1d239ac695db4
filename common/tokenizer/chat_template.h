// The chat templates of a model directory: a conversation into the text that the model was trained on.
#pragma once

#include <map>
#include <set>
#include <string>

#include "common/error.h"
#include "common/tokenizer/conversation.h"
#include "common/tokenizer/jinja/template.h"
#include "common/tokenizer/special_tokens.h"

namespace tandem::tokenizer {

class ChatTemplate {
  public:
    // Throws nothing for a template that cannot be read: that is said when it is asked for.
    explicit ChatTemplate(const SpecialTokens& special);

    // Throws ConfigError with the line of what is wrong in the default template, or where several have no
    // default.
    void check() const;
    // "bos_token" and the like, which a template writes without asking whether they are there.
    const std::set<std::string>& roles() const { return roles_; }

    // Throws BadInput where the template refuses the conversation or has another name than those known,
    // ConfigError where it cannot be read or fails.
    std::string render(const Conversation& conversation) const;

  private:
    struct Named {
        explicit Named(const TemplateText& from);
        std::string file;
        std::optional<jinja::Template> parsed;
        std::optional<ConfigError> problem;  // instead
    };
    const Named& chosen(const Conversation& conversation) const;
    std::string names() const;

    const std::string file_;
    const std::map<std::string, std::string, std::less<>> by_role_;
    std::map<std::string, Named> templates_;
    std::set<std::string> roles_;
};

}  // namespace tandem::tokenizer
