// What a file is that is not what its name says: strangers' directories hold pointers of Git LFS, pages that
// say "please log in", archives, and half of what was to be copied.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

// How many of a file's first bytes are worth looking at.
inline constexpr std::size_t kFileHeadBytes = 1024;

// head: a file's first bytes, as many as there are up to kFileHeadBytes or more. What it is and what to do,
// as "is a Git LFS pointer, not the file: git lfs pull", where it is something that no file of a model should
// be; else empty.
std::string foreign_kind(std::string_view head);

// The same of a file that could not be read as what it should be: also that it is empty, or what text it
// holds.
std::string file_kind(std::string_view head);

// Why a text is not JSON: what it is instead, or "malformed JSON: WHY". ends: the parser came to its end and
// missed the rest.
std::string not_json(std::string_view text, const std::string& why, bool ends);

}  // namespace tandem
