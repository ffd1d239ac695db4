// The arguments of a filter, method or function by its parameters' names, as Python binds them.
#pragma once

#include <initializer_list>
#include <vector>

#include "common/tokenizer/jinja/value.h"

namespace tandem::tokenizer::jinja {

class Bound {
  public:
    // names: of the parameters; one that begins with "/" is given by its place alone. `required`: of the
    // first ones. Throws Error where Python raises a TypeError: too many, too few, unknown or twice.
    Bound(const std::string& function, const Arguments& given, std::initializer_list<const char*> names,
          std::size_t required = 0);

    const Value* operator[](std::size_t i) const { return values_[i]; }  // nullptr: not given
    bool given(std::size_t i) const { return values_[i] != nullptr; }
    bool flag(std::size_t i, bool otherwise) const;                   // whether it counts as true
    Integer integer(std::size_t i, Integer otherwise) const;          // Throws Error: not an integer
    std::int64_t count(std::size_t i, std::int64_t otherwise) const;  // an integer, cut to 64 bits
    const std::string& string(std::size_t i) const;  // Throws Error: not a string, or not given
    std::string_view string(std::size_t i, const char* otherwise) const;
    bool is_none(std::size_t i) const { return values_[i] == nullptr || values_[i]->is_none(); }

  private:
    [[noreturn]] void fail(std::size_t i, const char* wanted) const;

    std::string function_;
    std::vector<const char*> names_;
    std::vector<const Value*> values_;
};

}  // namespace tandem::tokenizer::jinja
