// {"String": "…"} or {"Regex": "…"} of tokenizer.json: where a text is split, or what is replaced.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/tokenizer/growth.h"
#include "common/tokenizer/json_field.h"
#include "common/tokenizer/regex.h"

namespace tandem::tokenizer {

class Pattern {
  public:
    explicit Pattern(Regex regex) : how_(std::move(regex)) {}
    explicit Pattern(std::string literal) : how_(std::move(literal)) {}

    void split(std::string_view text, std::vector<Match>& pieces) const;  // as Regex::split
    // The text with `content` for every match, where `made` bytes of the whole are made already.
    std::string replace(std::string_view text, std::string_view content, const Growth& growth,
                        std::size_t made = 0) const;

  private:
    std::variant<Regex, std::string> how_;
};

Pattern read_pattern(const JsonField& field);  // throws ConfigError

}  // namespace tandem::tokenizer
