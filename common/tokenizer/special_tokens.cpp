#include "common/tokenizer/special_tokens.h"

#include <filesystem>

#include "common/error.h"
#include "common/file_kind.h"
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

// A template, or a list of named ones, of which "default" counts.
void read_template(const JsonField& config, SpecialTokens& special) {
    const auto field = config.find("chat_template");
    if (!field) return;
    special.chat_template_file = config.file();
    if (!field->value().is_array()) {
        special.chat_template = field->text();
        return;
    }
    for (const JsonField& named : field->items()) {
        if (named.at("name").text() == "default") special.chat_template = named.at("template").text();
    }
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
        read_template(config, special);
    }
    if (const std::string map = directory + "/special_tokens_map.json"; std::filesystem::exists(map)) {
        const nlohmann::json json = read_json(map);
        read_roles(JsonField(json, map, ""), special);
    }
    if (const std::string file = directory + "/chat_template.jinja"; std::filesystem::exists(file)) {
        special.chat_template = read_file(file);
        if (const std::string kind = foreign_kind(special.chat_template); !kind.empty())
            throw ConfigError(file, "", kind);
        special.chat_template_file = file;
    }
    return special;
}

}  // namespace tandem::tokenizer
