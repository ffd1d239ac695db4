// Chat templates: the part of Jinja that they use, as transformers sets it up (trim_blocks, lstrip_blocks,
// immutable sandbox, loop controls). A hostile template ends in an error: depth, steps and bytes are bounded.
//
// Supported: if, for (with condition, else, break, continue), set (also blocks, namespaces, several targets),
// macro, generation (ignored), raw; filters.cpp, is_tests.cpp, methods.cpp and functions.cpp list the rest.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {

class Body;

class Template {
  public:
    // Throws Error with the line of what is wrong or not supported.
    explicit Template(std::string_view source);
    ~Template();
    Template(Template&&) noexcept;
    Template& operator=(Template&&) noexcept;

    // Thread-safe. Throws Error with the line; BadInput where the template itself raised an exception.
    std::string render(const Entries& variables, const Limits& limits = {}) const;
    // Variables without which it cannot do.
    const std::set<std::string>& names_needed() const { return names_needed_; }

  private:
    std::unique_ptr<Body> body_;
    std::set<std::string> names_needed_;
};

}  // namespace tandem::tokenizer::jinja
