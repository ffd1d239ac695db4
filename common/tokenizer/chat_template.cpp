#include "common/tokenizer/chat_template.h"

#include <nlohmann/json.hpp>

#include "common/error.h"

namespace tandem::tokenizer {
namespace {

jinja::Template parse(const SpecialTokens& special) {
    try {
        return jinja::Template(special.chat_template);
    } catch (const Error& error) {
        throw ConfigError(special.chat_template_file, "chat_template", error.what());
    }
}

}  // namespace

ChatTemplate::ChatTemplate(const SpecialTokens& special)
    : file_(special.chat_template_file), by_role_(special.by_role), template_(parse(special)) {
    for (const std::string& name : template_.names_needed()) {
        if (name.ends_with("_token")) roles_.insert(name);
    }
}

std::string ChatTemplate::render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                 const nlohmann::ordered_json& options) const {
    jinja::Entries variables;
    for (const auto& [role, token] : by_role_) variables.emplace_back(role, token);
    try {
        variables.emplace_back("messages", jinja::Value::from_json(messages));
        variables.emplace_back("add_generation_prompt", add_generation_prompt);
        for (const char* absent : {"tools", "documents"}) {
            if (!options.contains(absent)) variables.emplace_back(absent, jinja::Value::None{});
        }
        for (const auto& [key, value] : options.items()) {
            variables.emplace_back(key, jinja::Value::from_json(value));
        }
        return template_.render(variables);
    } catch (const InvalidArgument&) {
        throw;
    } catch (const Error& error) {
        throw ConfigError(file_, "chat_template", error.what());
    }
}

}  // namespace tandem::tokenizer
