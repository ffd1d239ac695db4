// Filters, tests, methods of strings, lists and dictionaries, and functions that a template may use.
#pragma once

#include <string>

#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {

bool is_filter(const std::string& name);
Value apply_filter(Runtime& runtime, const std::string& name, const Value& subject,
                   const Arguments& arguments);

bool is_test_name(const std::string& name);
bool apply_test(Runtime& runtime, const std::string& name, const Value& subject, const Arguments& arguments);

// Whether a value of this type has a method of this name; then it may be called.
bool has_method(const Value& object, const std::string& name);
Value call_method(Runtime& runtime, const Value& object, const std::string& name, const Arguments& arguments);

// range, namespace, dict, raise_exception, strftime_now
void add_functions(Runtime& runtime);

// The elements of a for loop: items, keys, characters. Throws Error where Python could not iterate.
List elements(Runtime& runtime, const Value& value);
// object.name and object[name]: undefined where there is none; throws Error for what has no attributes.
Value attribute(Runtime& runtime, const Value& object, const std::string& name);
Value subscript(Runtime& runtime, const Value& object, const Value& index);
Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);
bool contains(Runtime& runtime, const Value& container, const Value& item);
std::size_t length(Runtime& runtime, const Value& value);
// As those of value.h, for what a template compares.
bool equal(Runtime& runtime, const Value& a, const Value& b);
std::optional<int> order(Runtime& runtime, const Value& a, const Value& b);

}  // namespace tandem::tokenizer::jinja
