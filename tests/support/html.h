// Checks on pages of HTML.
#pragma once

#include <string>
#include <vector>

namespace tandem {

// Every tag that opens closes, in order. Void elements aside, which is what HTML calls those without an end.
inline std::string unbalanced(const std::string& html) {
    std::vector<std::string> open;
    for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
        const std::size_t end = html.find('>', at);
        const std::string tag = html.substr(at + 1, end - at - 1);
        if (tag.starts_with("!") || tag.starts_with("meta") || tag.ends_with("/")) continue;
        const std::string name = tag.substr(0, tag.find_first_of(" >"));
        if (name[0] != '/') {
            open.push_back(name);
        } else if (open.empty() || "/" + open.back() != name) {
            return name;
        } else {
            open.pop_back();
        }
    }
    return open.empty() ? "" : open.back();
}

}  // namespace tandem
