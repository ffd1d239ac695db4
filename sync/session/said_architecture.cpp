#include "sync/session/said_architecture.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include "common/json_text.h"
#include "common/text_file.h"

namespace tandem::sync {

SaidArchitecture::SaidArchitecture(const nlohmann::json& config, const std::string& file) {
    try {
        architecture_ = model::Architecture::from_json(config, file);
    } catch (const ConfigError& error) {
        refused_ = error;
    }
}

SaidArchitecture SaidArchitecture::of_directory(const std::string& directory) {
    const std::filesystem::path file = std::filesystem::path(directory) / "config.json";
    std::error_code error;
    if (!std::filesystem::exists(file, error)) return {};
    return {parse_json_file(read_text_file(file.string()), file.string()), file.string()};
}

const model::Architecture* SaidArchitecture::get() const {
    if (refused_) throw ConfigError(*refused_);
    return known();
}

}  // namespace tandem::sync
