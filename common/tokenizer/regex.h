// Regular expressions of tokenizer.json: written for Oniguruma, matched by PCRE2 (compiled to machine code).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::tokenizer {

// A piece [begin, end) of a text; match: it is one of the pattern's.
struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool match = false;
};

class Regex {
  public:
    // Throws BadInput: not a regular expression, or one that PCRE2 would read differently.
    explicit Regex(const std::string& oniguruma_pattern);
    static Regex literal(std::string_view text);

    // All of `text` (valid UTF-8) as matches and what lies between them, in order; empty text gives nothing.
    // Lookarounds see nothing beyond `text`. Throws Error when matching takes too many steps. Thread-safe.
    void split(std::string_view text, std::vector<Match>& pieces) const;

  private:
    struct Code;
    std::shared_ptr<const Code> code_;
};

// The same expression in PCRE2's words. Throws BadInput naming what has none.
std::string to_pcre2(std::string_view oniguruma_pattern);

}  // namespace tandem::tokenizer
