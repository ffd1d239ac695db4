// The one way of reading a file that somebody else may have put there (lint.one_place): a FIFO would be waited for, and
// /dev/zero has no end.
#pragma once

#include <cstddef>
#include <string>

namespace tandem {

// The bytes of a regular file. Throws ConfigError naming it: cannot be opened, is no regular file, is larger than
// `most_bytes`. Never waits for a writer.
std::string read_text_file(const std::string& file, std::size_t most_bytes = std::size_t{64} << 20);

// The same, and nothing where there is no file of that name.
std::string read_text_file_if_there(const std::string& file, std::size_t most_bytes = std::size_t{64} << 20);

}  // namespace tandem
