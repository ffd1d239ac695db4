#include "common/http/metrics.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace tandem::http {

// name{label="value",…} value [timestamp]
std::optional<double> metric_value(std::string_view text, std::string_view name, std::string_view label) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        const std::size_t end = line.rfind('}');
        if (!line.starts_with(name) || end == std::string_view::npos || line[name.size()] != '{') continue;
        const std::string_view labels = line.substr(name.size(), end - name.size());
        const std::size_t at = labels.find(label);
        if (at == std::string_view::npos || (labels[at - 1] != '{' && labels[at - 1] != ',')) continue;
        const std::string_view rest = line.substr(end + 1);
        const std::size_t begin = rest.find_first_not_of(' ');
        double value = 0;
        if (begin != std::string_view::npos &&
            std::from_chars(rest.data() + begin, rest.data() + rest.size(), value).ec == std::errc())
            return value;
    }
    return std::nullopt;
}

}  // namespace tandem::http
