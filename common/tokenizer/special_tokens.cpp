#include "common/tokenizer/special_tokens.h"

#include <filesystem>

#include "common/error.h"
#include "common/file_kind.h"
#include "common/text_file.h"
#include "common/tokenizer/json_field.h"

namespace tandem::tokenizer {
namespace {

constexpr const char* kRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

// "</s>", or {"content": "</s>", …}
void read_roles(const JsonField& config, SpecialTokens& special) {
    for (const char* role : kRoles) {
        const auto field = config.find(role);
        if (!field) continue;
        const std::string content = field->value().is_object() ? field->at("content").text() : field->text();
        special.by_role.emplace(role, content);
    }
}

// A template, a list of named ones, or an object of them.
void read_config_templates(const JsonField& config, SpecialTokens& special) {
    const auto field = config.find("chat_template");
    if (!field) return;
    if (field->value().is_array()) {
        for (const JsonField& named : field->items()) {
            special.templates[named.at("name").text()] = {named.at("template").text(), config.file()};
        }
    } else if (field->value().is_object()) {
        for (const auto& [name, unused] : field->value().items()) {
            special.templates[name] = {field->at(name).text(), config.file()};
        }
    } else {
        special.templates["default"] = {field->text(), config.file()};
    }
}

TemplateText read_template(const std::string& file) {
    std::string text = read_text_file(file, kLargestFile);
    if (const std::string kind = foreign_kind(text); !kind.empty()) throw ConfigError(file, "", kind);
    return {std::move(text), file};
}

void read_template_files(const std::string& directory, SpecialTokens& special) {
    std::map<std::string, TemplateText> found;
    if (const std::string file = directory + "/chat_template.jinja"; std::filesystem::exists(file)) {
        found["default"] = read_template(file);
    }
    if (const std::filesystem::path more = directory + "/additional_chat_templates";
        std::filesystem::is_directory(more)) {
        for (const auto& entry : std::filesystem::directory_iterator(more)) {
            if (entry.path().extension() != ".jinja") continue;
            found[entry.path().stem().string()] = read_template(entry.path().string());
        }
    }
    if (!found.empty()) special.templates = std::move(found);
}

}  // namespace

std::optional<std::string> SpecialTokens::find(std::string_view role) const {
    auto found = by_role.find(role);
    if (found == by_role.end()) found = by_role.find(std::string(role) + "_token");
    if (found == by_role.end()) return std::nullopt;
    return found->second;
}

SpecialTokens read_special_tokens(const std::string& directory) {
    SpecialTokens special;
    special.file = directory + "/tokenizer_config.json";
    if (std::filesystem::exists(special.file)) {
        const nlohmann::json json = read_json(special.file);
        const JsonField config(json, special.file, "");
        read_roles(config, special);
        read_config_templates(config, special);
    }
    if (const std::string map = directory + "/special_tokens_map.json"; std::filesystem::exists(map)) {
        const nlohmann::json json = read_json(map);
        read_roles(JsonField(json, map, ""), special);
    }
    read_template_files(directory, special);
    return special;
}

}  // namespace tandem::tokenizer
