// A regular expression of PCRE2 over untrusted text: matching is bounded, so that a pattern that would
// backtrack for hours ends as no match.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::trainer {

class Pattern {
  public:
    // UTF-8. Throws InvalidArgument saying where the pattern is wrong, or that it is empty.
    Pattern(const std::string& pattern, bool ignore_case);
    ~Pattern();

    bool captures() const;  // it has a group
    // The first group of the last match, or all of it without a group; nothing when it does not match. Not
    // thread-safe.
    std::optional<std::string> last_match(std::string_view text) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::trainer
