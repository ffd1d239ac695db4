#include "sync/cost/store.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/text_file.h"

namespace tandem::sync {
namespace {

constexpr int kFormat = 6;  // raised, too, when a push changes so that old costs mislead

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

nlohmann::json read(const std::filesystem::path& file) {
    nlohmann::json json;
    try {
        json = json_text_or_nothing(read_text_file_if_there(file.string()));
    } catch (const ConfigError& error) {  // measured anew
        log_debug("measured costs are not read: {}", error.what());
    }
    const bool known = json.is_object() && json.value("format", nlohmann::json()) == kFormat &&
                       json.contains("entries") && json["entries"].is_object();
    if (known) return json;
    return {{"format", kFormat}, {"entries", nlohmann::json::object()}};
}

}  // namespace

std::filesystem::path costs_file() {
    std::filesystem::path folder = environment("TANDEM_CACHE_DIR");
    if (folder.empty()) {
        std::filesystem::path cache = environment("XDG_CACHE_HOME");
        const std::string home = environment("HOME");
        if (cache.empty() && !home.empty()) cache = std::filesystem::path(home) / ".cache";
        if (cache.empty()) return {};
        folder = cache / "tandem";
    }
    return folder / "costs.json";
}

std::int64_t seconds_since_1970() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::optional<Costs> stored_costs(const std::filesystem::path& file, const std::string& key,
                                  std::int64_t now) {
    if (file.empty()) return std::nullopt;
    const nlohmann::json json = read(file);
    const auto found = json["entries"].find(key);
    if (found == json["entries"].end()) return std::nullopt;
    try {
        const Costs costs = costs_from_json(*found);
        const bool fresh = costs.measured_at <= now && now - costs.measured_at <= kCostsValid.count();
        return fresh ? std::optional(costs) : std::nullopt;
    } catch (const InvalidArgument&) {
        return std::nullopt;
    }
}

void store_costs(const std::filesystem::path& file, const std::string& key, const Costs& costs) {
    if (file.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(file.parent_path(), error);
    nlohmann::json json = read(file);
    json["entries"][key] = to_json(costs);
    const std::filesystem::path fresh = file.string() + "." + std::to_string(::getpid());
    std::ofstream stream(fresh);
    stream << text_of_json(json, 2) << "\n";
    stream.close();
    if (stream) std::filesystem::rename(fresh, file, error);
    if (!stream || error) {
        log_debug("measured costs are not kept: {} cannot be written", file.string());
        std::filesystem::remove(fresh, error);
    }
}

}  // namespace tandem::sync
