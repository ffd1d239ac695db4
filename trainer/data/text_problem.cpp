#include "trainer/data/text_problem.h"

#include <nlohmann/json.hpp>

#include "common/error.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

bool is_blank(const std::string& text) {
    return text.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
}

class LineReader {
  public:
    LineReader(const JsonLines& lines, std::size_t index)
        : lines_(lines), index_(index), place_(lines.place(index)), object_(lines.object(index)) {}

    const json* find(const std::string& key) const {
        const auto found = object_.find(key);
        return found == object_.end() || found->is_null() ? nullptr : &*found;
    }
    [[noreturn]] void refuse(const std::string& key, const std::string& message) const {
        throw ConfigError(place_, key, message);
    }
    std::string known_keys() const {
        std::string keys;
        for (const auto& [key, value] : object_.items()) keys += (keys.empty() ? "" : ", ") + key;
        return keys.empty() ? "no keys" : keys;
    }
    std::string why_absent(const std::string& key, const std::string& option,
                           const std::string& need = {}) const {
        const std::string why = need.empty() ? "" : "; " + need;
        if (find(key) != nullptr) return "is empty" + why;
        return fmt::format("is missing{}; the line has {} ({} names another key)", why, known_keys(), option);
    }
    // Text, or a number or a truth value as it is written; empty when there is none.
    std::string scalar(const std::string& key) const {
        const json* value = find(key);
        if (value == nullptr) return {};
        if (value->is_structured())
            refuse(key, fmt::format("expects a text or a number, got an {}", value->type_name()));
        return value->is_string() ? value->get<std::string>() : std::string(lines_.written(index_, key));
    }

  private:
    const JsonLines& lines_;
    std::size_t index_;
    std::string place_;
    json object_;
};

std::vector<ChatTurn> read_turns(const LineReader& line, const std::string& key, const json& list) {
    std::vector<ChatTurn> turns;
    for (std::size_t i = 0; i < list.size(); ++i) {
        const auto word = [&](const char* field) {
            const std::string at = fmt::format("{}[{}].{}", key, i, field);
            if (!list[i].is_object() || !list[i].contains(field)) line.refuse(at, "is missing");
            if (!list[i][field].is_string())
                line.refuse(at, fmt::format("expects a text, got {}", list[i][field].type_name()));
            return list[i][field].get<std::string>();
        };
        turns.push_back({word("role"), word("content")});
    }
    if (turns.empty()) line.refuse(key, "is empty");
    return turns;
}

}  // namespace

TextProblem read_problem(const JsonLines& lines, std::size_t index, const TextKeys& keys) {
    const LineReader line(lines, index);
    TextProblem problem;
    const json* prompt = line.find(keys.prompt);
    if (prompt == nullptr) {
        line.refuse(keys.prompt, line.why_absent(keys.prompt, "data.prompt_key"));
    }
    if (prompt->is_array()) {
        problem.turns = read_turns(line, keys.prompt, *prompt);
    } else if (prompt->is_string()) {
        problem.text = prompt->get<std::string>();
        if (is_blank(problem.text)) line.refuse(keys.prompt, "is empty");
    } else {
        line.refuse(keys.prompt,
                    fmt::format("expects a text or a list of messages, got {}", prompt->type_name()));
    }
    problem.answer = line.scalar(keys.answer);
    problem.completion = line.scalar(keys.completion);
    return problem;
}

std::string read_answer(const JsonLines& lines, std::size_t index, const TextKeys& keys) {
    return LineReader(lines, index).scalar(keys.answer);
}

std::string why_absent(const JsonLines& lines, std::size_t index, const std::string& key,
                       const std::string& option, const std::string& need) {
    return LineReader(lines, index).why_absent(key, option, need);
}

}  // namespace tandem::trainer
