// Files that a user names on a command line. What is read may be a pipe, unlike what text_file.h reads.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace tandem {

// Throws ConfigError naming the file: it is a folder (which a stream would read as empty), or cannot be opened.
std::ifstream open_to_read(const std::string& file);

// The bytes of it. Throws as open_to_read, and where there are more than `most_bytes`: /dev/zero has no end.
std::string read_user_file(const std::string& file, std::size_t most_bytes = std::size_t{64} << 20);

// The next line, without its end; false where there is none. Of one that is longer, most_bytes + 1 bytes: for the caller to
// refuse.
bool next_line(std::istream& in, std::string& line, std::size_t most_bytes);

// Throws ConfigError naming `option` where `file` could not be written; for before the work whose result goes there.
// Leaves what is there as it is. Nothing is checked of an empty name.
void require_writable(const std::string& option, const std::string& file);

}  // namespace tandem
