#include "trainer/report/trace_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "common/text_file.h"
#include "common/trace.h"
#include "common/trace_file.h"

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
    try {
        std::vector<std::string> texts;
        for (const fs::path& part : parts)
            texts.push_back(read_text_file(part.string(), trace::kLargestTrace));
        trace::write_file(directory + "/trace.json", texts);
    } catch (const Error& error) {
        log_warn("no trace: {}", error.what());
        return;
    }
    for (const fs::path& part : parts) fs::remove(part);
}

}  // namespace tandem::trainer
