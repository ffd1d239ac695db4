// Python pickles, protocol 4, of the few things that tensors are told with. A value is the opcodes that leave it on the
// unpickler's stack; values are put together to larger ones, and document() makes a pickle of one. Nothing is shared
// between them: no memo.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::engine::pickle {

using Values = std::vector<std::string>;

std::string none();
std::string boolean(bool value);
std::string integer(std::int64_t value);
std::string text(std::string_view utf8);      // at most 4 GiB
std::string bytes(std::string_view content);  // the same
std::string tuple(const Values& values);
std::string list(const Values& values);
std::string dict(const std::vector<std::pair<std::string, std::string>>& items);
// What `from module import name` names.
std::string global(std::string_view module, std::string_view name);
// callable(*arguments), called where the pickle is opened.
std::string call(const std::string& callable, const Values& arguments);

std::string document(const std::string& value);

}  // namespace tandem::engine::pickle
