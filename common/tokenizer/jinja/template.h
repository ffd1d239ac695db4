// Chat templates: Jinja 3.1.6 as transformers 5 sets it up (trim_blocks, lstrip_blocks, immutable sandbox, loop
// controls, generation). What is not supported is refused by name, never another text. A hostile template ends in
// an error: depth, steps, bytes and time are bounded.
//
// Not supported: other templates (include, import, extends), autoescape, the filters random and urlize, integers of
// more than 128 bits, what Python prints with an address; filters*.cpp, is_tests.cpp, methods*.cpp and
// functions.cpp list what is.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {

class Body;

class Template {
  public:
    // Throws Error with the line of what is wrong or not supported; a text of more than kMostBytes or kMostTokens,
    // or one that takes more than a second of this thread's processor time.
    explicit Template(std::string_view source);
    ~Template();
    Template(Template&&) noexcept;
    Template& operator=(Template&&) noexcept;

    // Thread-safe. Throws Error with the line; BadInput where the template itself raised an exception.
    // charged, if not null: becomes what it was charged in units of Limits::work, also where it throws.
    std::string render(const Entries& variables, const Limits& limits = {},
                       std::uint64_t* charged = nullptr) const;
    // Variables without which it cannot do.
    const std::set<std::string>& names_needed() const { return names_needed_; }

  private:
    std::unique_ptr<Body> body_;
    std::set<std::string> names_needed_;
};

}  // namespace tandem::tokenizer::jinja
