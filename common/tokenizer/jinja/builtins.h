// Filters, tests, methods of strings, lists and the like, and functions that a template may use.
#pragma once

#include <map>
#include <string>

#include "common/tokenizer/jinja/object.h"
#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {

using Filter = Value (*)(Runtime&, const Value&, const Arguments&);
using Filters = std::map<std::string, Filter>;
Filters text_filters();      // filters_text.cpp
Filters number_filters();    // filters_number.cpp
Filters sequence_filters();  // filters_sequence.cpp: one value or list out of many
Filters lazy_filters();      // filters_lazy.cpp: those that give a generator
bool is_filter(const std::string& name);
Value apply_filter(Runtime& runtime, const std::string& name, const Value& subject,
                   const Arguments& arguments);

bool is_test_name(const std::string& name);
bool apply_test(Runtime& runtime, const std::string& name, const Value& subject, const Arguments& arguments);

// Whether a value of this type has a method of this name; then it may be called.
bool has_method(const Value& object, const std::string& name);
Value call_method(Runtime& runtime, const Value& object, const std::string& name, const Arguments& arguments);
// methods_string.cpp
bool is_string_method(const Value& text, const std::string& name);
Value call_string_method(Runtime& runtime, const Value& text, const std::string& name,
                         const Arguments& arguments);

// range, namespace, dict, cycler, joiner, raise_exception, strftime_now
void add_functions(Runtime& runtime);
Value make_dict(Runtime& runtime, const Arguments& arguments);  // dict(…)

// object.name and object[name], as jinja2's sandbox looks them up: undefined where there is none; throws
// Error for what has no attributes.
Value attribute(Runtime& runtime, const Value& object, const std::string& name);
Value subscript(Runtime& runtime, const Value& object, const Value& index);
Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);
bool contains(Runtime& runtime, const Value& container, const Value& item);
Integer length(Runtime& runtime, const Value& value);
Value call(Runtime& runtime, const Value& function, const Arguments& arguments);

// "text %s" % values, "{} {}".format(values), format(value, "05.2f")
std::string percent_format(Runtime& runtime, const std::string& format, const Value& values);
std::string brace_format(Runtime& runtime, const std::string& format, const Arguments& arguments);
std::string format_value(Runtime& runtime, const Value& value, std::string_view spec);

std::string escape_html(Runtime& runtime, const Value& value);  // markupsafe.escape

}  // namespace tandem::tokenizer::jinja
