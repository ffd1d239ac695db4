#include "common/model/json_text.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "common/error.h"
#include "common/file_kind.h"

namespace tandem::model {
namespace {

using nlohmann::json;

constexpr std::size_t kMostDepth = 64;

// Follows the parser's events. keys_: of every object or array that is open; an array's stays empty.
class Watch {
  public:
    explicit Watch(const std::string& file) : file_(file) {}
    void see(json::parse_event_t event, const json& value) {
        using Event = json::parse_event_t;
        if (event == Event::object_start || event == Event::array_start) {
            if (keys_.size() == kMostDepth) {
                throw ConfigError(file_, "", fmt::format("nested more than {} deep", kMostDepth));
            }
            keys_.emplace_back();
        } else if (event == Event::object_end || event == Event::array_end) {
            keys_.pop_back();
        } else if (event == Event::key && !keys_.back().insert(value.get<std::string>()).second) {
            throw ConfigError(file_, value.get<std::string>(), "is there twice");
        }
    }

  private:
    const std::string& file_;
    std::vector<std::set<std::string>> keys_;
};

}  // namespace

json parse_json(std::string_view text, const std::string& file) {
    Watch watch(file);
    try {
        return json::parse(text.begin(), text.end(), [&](int, json::parse_event_t event, json& value) {
            watch.see(event, value);
            return true;
        });
    } catch (const json::parse_error& error) {
        throw ConfigError(file, "", not_json(text, error.what(), error.byte > text.size()));
    } catch (const json::exception& error) {
        throw ConfigError(file, "", not_json(text, error.what(), false));
    }
}

std::string read_text_file(const std::string& file, std::size_t most_bytes) {
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) throw ConfigError(file, "", "is a folder, not a file");
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw ConfigError(file, "", std::string("cannot be opened: ") + std::strerror(errno));
    const auto bytes = std::filesystem::file_size(file, error);
    if (error) throw ConfigError(file, "", "is not a regular file");
    if (bytes > most_bytes) {
        throw ConfigError(file, "", fmt::format("is {} bytes long, more than {}", bytes, most_bytes));
    }
    std::string text(static_cast<std::size_t>(bytes), '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(stream.gcount()));
    return text;
}

}  // namespace tandem::model
