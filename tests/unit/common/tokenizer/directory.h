// A model directory with the tokenizer files that a test wants, removed at its end.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace tandem::tokenizer {

class Directory {
  public:
    Directory() {
        static std::atomic<int> count{0};
        path_ = std::filesystem::temp_directory_path() /
                ("tandem_tokenizer_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
        std::filesystem::create_directories(path_);
    }
    ~Directory() { std::filesystem::remove_all(path_); }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;

    Directory& write(const std::string& name, const std::string& text) {
        std::filesystem::create_directories((path_ / name).parent_path());
        std::ofstream(path_ / name, std::ios::binary) << text;
        return *this;
    }
    std::string path() const { return path_.string(); }
    std::string file(const std::string& name) const { return path_.string() + "/" + name; }

  private:
    std::filesystem::path path_;
};

// A byte-level tokenizer of a few tokens: all that "hello" and " low" need.
inline nlohmann::json small_tokenizer() {
    return nlohmann::json::parse(R"({
      "version": "1.0", "added_tokens": [
        {"id": 0, "content": "<s>", "special": true, "normalized": false},
        {"id": 14, "content": "<tool>", "special": false, "normalized": false, "lstrip": true}],
      "normalizer": null,
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
      "decoder": {"type": "ByteLevel"},
      "model": {"type": "BPE",
        "vocab": {"<s>": 0, "h": 1, "e": 2, "l": 3, "o": 4, "w": 5, "Ġ": 6, "ll": 7, "he": 8, "hell": 9,
                  "hello": 10, "Ġlo": 11, "lo": 12, "Ġlow": 13},
        "merges": ["l l", "h e", "he ll", "hell o", ["l", "o"], ["Ġ", "lo"], ["Ġlo", "w"]]}})");
}

}  // namespace tandem::tokenizer
