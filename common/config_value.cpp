// Checks of one value against one key.
#include "common/config_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace tandem::config {

Value current(const Key& key) {
    return std::visit([](auto* field) -> Value { return *field; }, key.field);
}

std::string to_text(const Value& value) {
    return std::visit(
        [](const auto& v) {
            using Type = std::decay_t<decltype(v)>;
            if constexpr (std::is_same_v<Type, std::string>) {
                return nlohmann::json(v).dump();
            } else if constexpr (std::is_same_v<Type, Texts>) {
                Texts quoted;
                for (const std::string& text : v) quoted.push_back(nlohmann::json(text).dump());
                return fmt::format("[{}]", joined(quoted));
            } else {
                return fmt::format("{}", v);
            }
        },
        value);
}

std::string joined(const std::vector<std::string>& words) {
    std::string result;
    for (const std::string& word : words) result += (result.empty() ? "" : ", ") + word;
    return result;
}

bool is_number(const Key& key) {
    return std::holds_alternative<std::int64_t*>(key.field) || std::holds_alternative<double*>(key.field);
}

std::string type_name(const Key& key) {
    if (std::holds_alternative<bool*>(key.field)) return "boolean";
    if (std::holds_alternative<std::int64_t*>(key.field)) return "integer";
    if (std::holds_alternative<double*>(key.field)) return "number";
    if (std::holds_alternative<Texts*>(key.field)) return "array of text";
    return "text";
}

std::string allowed(const Key& key) {
    if (std::holds_alternative<bool*>(key.field)) return "true or false";
    if (std::holds_alternative<Texts*>(key.field)) return "an array of text";
    if (std::holds_alternative<std::string*>(key.field)) {
        if (key.choices.empty()) return "text";
        std::vector<std::string> quoted;
        for (const std::string& choice : key.choices) quoted.push_back(to_text(choice));
        return quoted.size() == 1 ? fmt::format("{} only", quoted[0])
                                  : fmt::format("one of {}", joined(quoted));
    }
    if (std::holds_alternative<std::int64_t*>(key.field)) {
        return fmt::format("a whole number from {:.0f} to {:.0f}", key.min, key.max);
    }
    return fmt::format("a number from {} to {}", key.min, key.max);
}

std::variant<Value, std::string> checked(const Key& key, const Value& value) {
    Value result = value;
    if (std::holds_alternative<double*>(key.field) && std::holds_alternative<std::int64_t>(value)) {
        result = static_cast<double>(std::get<std::int64_t>(value));
    }
    bool good = result.index() == current(key).index();
    if (good && is_number(key)) {
        const double number = std::visit(
            [](const auto& v) -> double {
                if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>) return static_cast<double>(v);
                return 0;
            },
            result);
        good = std::isfinite(number) && number >= key.min && number <= key.max;
    }
    if (good && !key.choices.empty()) {
        const auto& text = std::get<std::string>(result);
        good = std::find(key.choices.begin(), key.choices.end(), text) != key.choices.end();
    }
    if (!good) return fmt::format("expects {}, got {}", allowed(key), to_text(value));
    return result;
}

}  // namespace tandem::config
