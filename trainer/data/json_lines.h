// A file with one JSON object a line: read and indexed once, parsed line by line when asked, so that ranks of
// one host share the copy that was read (file_copy.h) and each has its index alone. Blank lines do not count.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/file_copy.h"

namespace tandem::trainer {

class JsonLines {
  public:
    // Throws ConfigError: the file cannot be read, or holds nothing. Later writes to it change nothing here.
    explicit JsonLines(const std::string& file);
    JsonLines(const JsonLines&) = delete;
    JsonLines& operator=(const JsonLines&) = delete;

    std::size_t size() const { return lines_.size(); }
    // Throws ConfigError "FILE:LINE:COLUMN: …" when the line is no JSON, "FILE:LINE: …" when it is no object.
    nlohmann::json object(std::size_t index) const;
    // The text of what the line's object has under a key, of the last where there are several; empty: nothing. A number that was
    // parsed has lost what no double holds.
    std::string_view written(std::size_t index, std::string_view key) const;
    std::string place(std::size_t index) const;  // "FILE:LINE", lines from 1

  private:
    struct Line {
        std::size_t start = 0;
        std::size_t size = 0;
        std::size_t number = 0;
    };
    void index();
    std::string_view text_of(std::size_t index) const;

    std::string file_;
    std::shared_ptr<const FileCopy> copy_;
    std::string_view text_;  // its
    std::vector<Line> lines_;
};

}  // namespace tandem::trainer
