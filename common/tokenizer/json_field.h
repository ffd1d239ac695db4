// A value of a JSON file together with where it stands, so that whatever is wrong names file and key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::tokenizer {

class JsonField {
  public:
    JsonField(const nlohmann::json& value, std::string file, std::string path)
        : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

    const nlohmann::json& value() const { return *value_; }
    const std::string& file() const { return file_; }
    const std::string& path() const { return path_; }

    JsonField at(const std::string& key) const;                   // refuses a missing or null one
    std::optional<JsonField> find(const std::string& key) const;  // nullopt: missing or null
    std::vector<JsonField> items() const;                         // of a list

    std::string text() const;   // a copy: fields are often temporaries
    std::string token() const;  // of at most kLongestToken bytes
    bool flag() const;
    std::int64_t integer(std::int64_t least, std::int64_t most) const;
    bool flag(const std::string& key, bool otherwise) const;
    char32_t character() const;  // a string of one character

    [[noreturn]] void fail(const std::string& message) const;  // ConfigError

  private:
    const nlohmann::json* value_;
    std::string file_;
    std::string path_;
};

inline constexpr std::size_t kLongestToken = std::size_t{1}
                                             << 16;  // in bytes: those of real vocabularies have some 100
inline constexpr std::size_t kLargestFile = std::size_t{1} << 30;  // of a tokenizer's: large ones have 40 MB
// A file as Hugging Face's own readers take it: of a key given twice the last. Throws ConfigError.
nlohmann::json read_json(const std::string& file);

}  // namespace tandem::tokenizer
