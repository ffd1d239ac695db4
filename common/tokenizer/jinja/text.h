// Text that charges for every byte that it takes: whatever makes text makes it with this.
#pragma once

#include <string>
#include <string_view>

#include "common/tokenizer/jinja/value.h"

namespace tandem::tokenizer::jinja {

class Text {
  public:
    explicit Text(Runtime& runtime);
    Text& operator+=(std::string_view more);
    Text& operator+=(char c) { return *this += std::string_view(&c, 1); }
    void fill(std::size_t count, std::string_view with);
    std::size_t size() const { return text_.size(); }
    std::string take() { return std::move(text_); }

  private:
    Runtime& runtime_;
    std::string text_;
};

// str(value) and repr(value). Throw Error for what Python prints with an address.
void print(Runtime& runtime, Text& out, const Value& value);
void print_repr(Runtime& runtime, Text& out, const Value& value);
std::string str(Runtime& runtime, const Value& value);
std::string repr(Runtime& runtime, const Value& value);
std::string float_repr(double value);
bool is_printable(char32_t code_point);  // str.isprintable

struct JsonStyle {
    std::optional<std::string_view> indent;  // of a level; nullopt: all on one line
    std::string_view item_separator = ", ", key_separator = ": ";
    bool ensure_ascii = false;
    bool sort_keys = false;
};
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);  // as Python's json.dumps

}  // namespace tandem::tokenizer::jinja
