// Files that a user names on a command line. What is read may be a pipe, unlike what text_file.h reads.
#pragma once

#include <fstream>
#include <string>

namespace tandem {

// Throws ConfigError naming the file: it is a folder (which a stream would read as empty), or cannot be opened.
std::ifstream open_to_read(const std::string& file);

// Throws ConfigError naming `option` where `file` could not be written; for before the work whose result goes there.
// Leaves what is there as it is. Nothing is checked of an empty name.
void require_writable(const std::string& option, const std::string& file);

}  // namespace tandem
