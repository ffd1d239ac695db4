// One line of a prompts file: what is asked, and what would be right.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/data/json_lines.h"

namespace tandem::trainer {

struct ChatTurn {
    std::string role;
    std::string content;
};

struct TextProblem {
    std::string text;             // a prompt that was one string …
    std::vector<ChatTurn> turns;  // … or a conversation; one of them is empty
    std::string answer;           // a number is taken as it is written; empty when the line has none
    std::string completion;       // what to imitate; empty when the line has none
};

// Under which keys a line holds them.
struct TextKeys {
    std::string prompt = "prompt";
    std::string answer = "answer";
    std::string completion = "completion";
};

// Throws ConfigError naming file, line and key: no prompt, an empty one, a value of the wrong type.
TextProblem read_problem(const JsonLines& lines, std::size_t index, const TextKeys& keys);
// The line's answer alone, of any line that is a JSON object; empty when it has none.
std::string read_answer(const JsonLines& lines, std::size_t index, const TextKeys& keys);
// What is wrong with a line without such a value: "is missing; NEED; the line has prompt, solution (OPTION
// names another key)", or "is empty; NEED". NEED may be empty.
std::string why_absent(const JsonLines& lines, std::size_t index, const std::string& key,
                       const std::string& option, const std::string& need = {});

}  // namespace tandem::trainer
