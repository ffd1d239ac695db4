#include "common/trace_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/text_file.h"

namespace tandem::trace {

using nlohmann::json;

std::string merged(const std::vector<std::string>& parts) {
    json events = json::array();
    for (const std::string& part : parts) {
        json recorded = json_text_or_nothing(part, any_values(part));
        if (recorded.is_object() && recorded.contains("traceEvents"))
            recorded = json(recorded["traceEvents"]);
        if (recorded.is_array()) {
            events.insert(events.end(), recorded.begin(), recorded.end());
        } else {
            log_warn("a part of a trace is not a list of events; left out: {}", part.substr(0, 60));
        }
    }
    return text_of_json(json{{"traceEvents", std::move(events)}});
}

void write_file(const std::string& file, const std::vector<std::string>& parts) {
    const std::string temporary = file + ".tmp." + std::to_string(::getpid());
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    if (!out) throw SystemError("write " + file, errno);
    out << merged(parts) << "\n";
    out.close();
    if (!out || std::rename(temporary.c_str(), file.c_str()) != 0) {
        const int error = errno;
        std::remove(temporary.c_str());
        throw SystemError("write " + file, error);
    }
}

void add_to_file(const std::string& file, const std::vector<std::string>& parts) {
    std::vector<std::string> all;
    if (std::string there = read_text_file_if_there(file, kLargestTrace); !there.empty())
        all.push_back(std::move(there));
    all.insert(all.end(), parts.begin(), parts.end());
    write_file(file, all);
}

}  // namespace tandem::trace
