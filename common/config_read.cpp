// Reading TOML into a schema.
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>

#include "common/config.h"
#include "common/config_value.h"
#include "common/error.h"
#include "common/printable.h"

namespace tandem::config {
namespace {

// The value of a node, if it is of a type that a key can have.
std::optional<Value> value_of(const toml::node& node) {
    if (const auto* v = node.as_boolean()) return Value(v->get());
    if (const auto* v = node.as_integer()) return Value(v->get());
    if (const auto* v = node.as_floating_point()) return Value(v->get());
    if (const auto* v = node.as_string()) return Value(v->get());
    const toml::array* const array = node.as_array();
    if (array == nullptr) return std::nullopt;
    Texts texts;
    for (const toml::node& item : *array) {
        if (!item.is_string()) return std::nullopt;
        texts.push_back(item.as_string()->get());
    }
    return Value(std::move(texts));
}

std::string kind(const toml::node& node) {
    if (node.is_table()) return "a table";
    if (node.is_array()) return "an array";
    return "a date or time";
}

void store(Key& key, const Value& value) {
    std::visit([&](auto* field) { *field = std::get<std::decay_t<decltype(*field)>>(value); }, key.field);
}

}  // namespace

void Schema::read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in || std::filesystem::is_directory(path)) {
        throw ConfigError(path, "", "cannot be read; give the path of a TOML file");
    }
    read_text({std::istreambuf_iterator<char>(in), {}}, path);
}

void Schema::read_text(const std::string& toml_text, const std::string& file) {
    toml::table root;
    try {
        root = toml::parse(toml_text, file);
    } catch (const toml::parse_error& error) {
        throw ConfigError(fmt::format("{}:{}", file, error.source().begin.line), "",
                          std::string(error.description()));
    }
    struct Setting {
        Key* key;
        Value value;
        std::string where;
    };
    std::vector<Setting> settings;
    const std::function<void(const toml::table&, const std::string&)> walk = [&](const toml::table& table,
                                                                                 const std::string& prefix) {
        for (const auto& [name, node] : table) {
            const std::string dotted = prefix + std::string(name.str());
            const std::string where = fmt::format("{}:{}", file, name.source().begin.line);
            Key* key = find(dotted);
            const bool section = std::any_of(keys_.begin(), keys_.end(),
                                             [&](const Key& k) { return k.name.starts_with(dotted + "."); });
            const bool has_keys = node.is_table() && !node.as_table()->empty();
            if (key == nullptr && node.is_table() && (section || has_keys)) {
                walk(*node.as_table(), dotted + ".");
                continue;
            }
            if (key == nullptr) throw ConfigError(where, "", unknown(dotted));
            const auto value = value_of(node);
            if (!value)
                throw ConfigError(where, dotted,
                                  fmt::format("expects {}, got {}", allowed(*key), kind(node)));
            const auto outcome = checked(*key, *value);
            if (const auto* message = std::get_if<std::string>(&outcome))
                throw ConfigError(where, dotted, *message);
            settings.push_back({key, std::get<Value>(outcome), where});
        }
    };
    walk(root, "");
    for (const Setting& setting : settings) {
        store(*setting.key, setting.value);
        setting.key->where = setting.where;
    }
}

void Schema::read_override(const std::string& assignment) {
    const auto equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) {
        throw ConfigError("--set", "", fmt::format("'{}' is not of the form key=value", assignment));
    }
    const std::string name = assignment.substr(0, equals);
    const std::string text = assignment.substr(equals + 1);

    Key* key = find(name);
    std::vector<std::string> same_word;
    for (Key& candidate : keys_) {
        if (name.find('.') == std::string::npos && candidate.name.ends_with("." + name)) {
            same_word.push_back(candidate.name);
            key = &candidate;
        }
    }
    if (same_word.size() > 1) {
        throw ConfigError("--set", "", fmt::format("key '{}' is ambiguous: {}", name, joined(same_word)));
    }
    if (key == nullptr) throw ConfigError("--set", "", unknown(name));
    // A path may be anything, but neither the run's config.toml nor its checkpoints could repeat it.
    if (!is_utf8(text)) throw ConfigError("--set", key->name, "holds bytes that are not UTF-8");

    Value value = text;
    try {
        const toml::table parsed = toml::parse("value = " + text);
        const auto found = value_of(*parsed.get("value"));
        const bool wants_text = std::holds_alternative<std::string*>(key->field);
        if (found && (!wants_text || std::holds_alternative<std::string>(*found))) value = *found;
    } catch (const toml::parse_error&) {
        // A bare word: text.
    }
    const auto outcome = checked(*key, value);
    if (const auto* message = std::get_if<std::string>(&outcome))
        throw ConfigError("--set", key->name, *message);
    store(*key, std::get<Value>(outcome));
    key->where = "--set";
}

}  // namespace tandem::config
