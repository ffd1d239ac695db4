#include "common/tokenizer/chat_template.h"

namespace tandem::tokenizer {

ChatTemplate::Named::Named(const TemplateText& from) : file(from.file) {
    try {
        parsed.emplace(from.text);
    } catch (const Error& error) {
        problem.emplace(file, "chat_template", error.what());
    }
}

ChatTemplate::ChatTemplate(const SpecialTokens& special) : file_(special.file), by_role_(special.by_role) {
    for (const auto& [name, text] : special.templates) {
        const Named& made = templates_.emplace(name, text).first->second;
        if (!made.parsed) continue;
        for (const std::string& read : made.parsed->names_needed()) {
            if (read.ends_with("_token")) roles_.insert(read);
        }
    }
}

std::string ChatTemplate::names() const {
    std::string all;
    for (const auto& [name, unused] : templates_) all += (all.empty() ? "" : ", ") + name;
    return all;
}

void ChatTemplate::check() const {
    const auto found = templates_.find("default");
    if (found == templates_.end()) {
        throw ConfigError(file_, "chat_template", "has several templates and none named default: " + names());
    }
    if (found->second.problem) throw ConfigError(*found->second.problem);
}

const ChatTemplate::Named& ChatTemplate::chosen(const Conversation& conversation) const {
    const jinja::Value* tools = conversation.variable("tools");
    const bool with_tools = tools != nullptr && !tools->is_none() && templates_.count("tool_use") > 0;
    const std::string& asked = conversation.template_name;
    const auto found = templates_.find(!asked.empty() ? asked : with_tools ? "tool_use" : "default");
    if (found != templates_.end()) return found->second;
    if (asked.empty()) {
        throw ConfigError(file_, "chat_template", "has several templates and none named default: " + names());
    }
    throw BadInput("there is no chat template named \"" + asked + "\"; known: " + names());
}

std::string ChatTemplate::render(const Conversation& conversation) const {
    const Named& made = chosen(conversation);
    if (made.problem) throw ConfigError(*made.problem);
    jinja::Entries variables;
    for (const auto& [role, token] : by_role_) variables.emplace_back(role, token);
    variables.emplace_back("messages", template_messages(conversation.messages));
    variables.emplace_back("add_generation_prompt", conversation.add_generation_prompt);
    for (const char* absent : {"tools", "documents"}) variables.emplace_back(absent, jinja::Value::None{});
    variables.insert(variables.end(), conversation.variables.begin(), conversation.variables.end());
    try {
        return made.parsed->render(variables);
    } catch (const InvalidArgument&) {
        throw;
    } catch (const Error& error) {
        throw ConfigError(made.file, "chat_template", error.what());
    }
}

}  // namespace tandem::tokenizer
