// What a program writes for the one who runs it, and its end.
#pragma once

#include <cstdio>
#include <string_view>

namespace tandem {

// Of what is only told, as to standard error: where it cannot be written (a log on a full disk), work goes on. fmt::print
// throws there.
void tell(std::FILE* out, std::string_view text) noexcept;

// A program's exit code where its work ended with `code`: 1, and a word on standard error, where standard output has not
// taken all of what was the result.
int end_of_program(const char* program, int code) noexcept;

}  // namespace tandem
