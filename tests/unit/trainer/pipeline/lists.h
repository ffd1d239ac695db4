// Lists as text, for tests.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {

inline std::string text_of(const ActionList& list) {
    std::string text;
    for (const Action& action : list) text.append(text.empty() ? "" : " ").append(to_string(action));
    return text;
}

inline ActionList list_of(const std::string& text) {
    ActionList list;
    std::istringstream words(text);
    for (std::string word; words >> word;) list.push_back(parse_action(word));
    return list;
}

}  // namespace tandem::pipeline
