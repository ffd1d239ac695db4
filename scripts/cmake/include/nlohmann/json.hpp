// The library's own header, but for its literal operator ""_json: an inline function for which each source that includes
// the header instantiates the whole parser, used or not (.4 s). Nothing here uses it, so it becomes a template that
// nobody instantiates. Where a later release writes it otherwise, this changes nothing.
#pragma once

#define _json(...) _json(__VA_ARGS__) = delete; template <int> nlohmann::json of_literal(__VA_ARGS__)
#include_next <nlohmann/json.hpp>
#undef _json
