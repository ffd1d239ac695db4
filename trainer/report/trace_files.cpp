#include "trainer/report/trace_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/log.h"
#include "common/trace.h"

namespace tandem::trainer {

namespace fs = std::filesystem;

void write_trace_part(const std::string& directory, const std::string& process) {
    std::ofstream(directory + "/trace." + process + ".json") << trace::take_json();
}

void merge_trace_parts(const std::string& directory) {
    std::vector<fs::path> parts;
    for (const auto& entry : fs::directory_iterator(directory)) {
        const std::string name = entry.path().filename();
        if (name.starts_with("trace.") && name.ends_with(".json") && name != "trace.json")
            parts.push_back(entry.path());
    }
    std::sort(parts.begin(), parts.end());
    auto events = nlohmann::json::array();
    for (const fs::path& part : parts) {
        std::ifstream in(part);
        const auto recorded = nlohmann::json::parse(in, nullptr, false);
        if (recorded.is_array()) {
            events.insert(events.end(), recorded.begin(), recorded.end());
        } else {
            spdlog::warn("{} is not a list of trace events; left out", part.string());
        }
        fs::remove(part);
    }
    std::ofstream(directory + "/trace.json") << nlohmann::json{{"traceEvents", std::move(events)}}.dump();
}

}  // namespace tandem::trainer
