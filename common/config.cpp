// The schema: declaring keys, finding them, explaining them. Reading TOML into it is config_read.cpp.
#include "common/config.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/config_value.h"
#include "common/error.h"
#include "common/json_text.h"
#include "common/wrap.h"

namespace tandem::config {

void Schema::add(Key key) {
    require(find(key.name) == nullptr, "config key '{}' is declared twice", key.name);
    key.initial = current(key);
    keys_.push_back(std::move(key));
}

void Schema::flag(std::string name, bool& field, std::string help) {
    add({std::move(name), &field, std::move(help), {}, 0, 0, {}, {}});
}

void Schema::integer(std::string name, std::int64_t& field, std::int64_t min, std::int64_t max,
                     std::string help) {
    add({std::move(name),
         &field,
         std::move(help),
         {},
         static_cast<double>(min),
         static_cast<double>(max),
         {},
         {}});
}

void Schema::real(std::string name, double& field, double min, double max, std::string help) {
    add({std::move(name), &field, std::move(help), {}, min, max, {}, {}});
}

void Schema::text(std::string name, std::string& field, std::string help) {
    add({std::move(name), &field, std::move(help), {}, 0, 0, {}, {}});
}

void Schema::texts(std::string name, Texts& field, std::string help) {
    add({std::move(name), &field, std::move(help), {}, 0, 0, {}, {}});
}

void Schema::choice(std::string name, std::string& field, std::vector<std::string> choices,
                    std::string help) {
    add({std::move(name), &field, std::move(help), {}, 0, 0, std::move(choices), {}});
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
            d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
            }
        }
    }
    return d[a.size()][b.size()];
}

Key* Schema::find(std::string_view name) {
    const auto it =
        std::find_if(keys_.begin(), keys_.end(), [&](const Key& key) { return key.name == name; });
    return it == keys_.end() ? nullptr : &*it;
}

// The right word in the wrong section is nearer than any misspelling of both.
std::string Schema::nearest(std::string_view name) const {
    const auto last = [](std::string_view dotted) { return dotted.substr(dotted.rfind('.') + 1); };
    std::string best;
    std::size_t best_distance = std::numeric_limits<std::size_t>::max();
    for (const Key& key : keys_) {
        const std::size_t distance =
            std::min(edit_distance(name, key.name), 1 + edit_distance(last(name), last(key.name)));
        if (distance < best_distance) {
            best = key.name;
            best_distance = distance;
        }
    }
    return best;
}

std::string Schema::unknown(std::string_view name) const {
    return fmt::format("unknown key '{}'; did you mean '{}'?", name, nearest(name));
}

const Key& Schema::key(std::string_view name) const {
    for (const Key& key : keys_) {
        if (key.name == name) return key;
    }
    throw ConfigError("command line", "", unknown(name));
}

std::string Schema::where(std::string_view name) const {
    const Key& found = key(name);
    return found.where.empty() ? "default" : found.where;
}

void Schema::refuse(std::string_view name, const std::string& message) const {
    throw ConfigError(where(name), std::string(name), message);
}

std::vector<const Key*> Schema::selected(std::string_view name) const {
    std::vector<const Key*> result;
    for (const Key& key : keys_) {
        const bool in_section = key.name.starts_with(std::string(name) + ".");
        const bool last_word = key.name.ends_with("." + std::string(name));  // as --set takes it
        if (name.empty() || key.name == name || in_section || last_word) result.push_back(&key);
    }
    if (!result.empty()) return result;
    // What is near to a section may be far from all of its keys.
    for (const Key& key : keys_) {
        const std::string section = key.name.substr(0, key.name.find('.'));
        if (edit_distance(name, section) <= 1)
            throw ConfigError("command line", "",
                              fmt::format("unknown section '{}'; did you mean '{}'?", name, section));
    }
    throw ConfigError("command line", "", unknown(name));
}

std::string Schema::explain(std::string_view name) const {
    std::string result;
    for (const Key* key : selected(name)) {
        const auto paragraph = [](const std::string& text) { return wrapped(text, kTerminalColumns - 4, 4); };
        result += fmt::format("{} = {}\n    {}\n    {}\n", key->name, to_text(key->initial),
                              paragraph(key->help), paragraph(allowed(*key)));
    }
    return result;
}

std::string Schema::explain_json(std::string_view name) const {
    auto result = nlohmann::ordered_json::array();
    for (const Key* key : selected(name)) {
        nlohmann::ordered_json entry{{"key", key->name}, {"type", type_name(*key)}};
        std::visit([&](const auto& value) { entry["default"] = value; }, key->initial);
        if (is_number(*key)) {
            entry["min"] = key->min;
            entry["max"] = key->max;
        }
        if (!key->choices.empty()) entry["choices"] = key->choices;
        entry["help"] = key->help;
        result.push_back(std::move(entry));
    }
    return text_of_json(result, 2) + "\n";
}

std::string Schema::to_toml() const {
    std::string result;
    std::string section;
    for (const Key& key : keys_) {
        const auto dot = key.name.rfind('.');
        const std::string its_section = key.name.substr(0, dot);
        if (its_section != section) {
            result += fmt::format("{}[{}]\n", result.empty() ? "" : "\n", its_section);
            section = its_section;
        }
        result += fmt::format("{} = {}\n", key.name.substr(dot + 1), to_text(current(key)));
    }
    return result;
}

}  // namespace tandem::config
