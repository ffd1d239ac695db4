// A conversation with all that a chat template reads of it.
#pragma once

#include <string>
#include <string_view>

#include "common/tokenizer/jinja/value.h"

namespace tandem::tokenizer {

struct Conversation {
    jinja::List messages;  // dictionaries
    bool add_generation_prompt = true;
    jinja::Entries variables;  // tools, documents, enable_thinking, …
    // Of a model with several templates; empty: tool_use where there are tools, else default.
    std::string template_name;

    // A list of messages, or an object with "messages", "add_generation_prompt" and variables. Integers keep
    // their value. Throws BadInput with line and column, or the key that is wrong.
    static Conversation from_json(std::string_view json);
    const jinja::Value* variable(std::string_view name) const;  // nullptr: not given
};

// The messages as transformers 5 shows them to a template: keys whose value is null are left out, and what a
// message has under one of reasoning_content, thinking and reasoning stands under the first two. Throws
// BadInput: no dictionary.
jinja::Value template_messages(const jinja::List& messages);

}  // namespace tandem::tokenizer
