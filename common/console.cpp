#include "common/console.h"

#include <iostream>

namespace tandem {

void tell(std::FILE* out, std::string_view text) noexcept {
    std::fwrite(text.data(), 1, text.size(), out);
    std::fflush(out);
}

int end_of_program(const char* program, int code) noexcept {
    const bool stream = static_cast<bool>(std::cout.flush());
    const bool file = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    if (stream && file) return code;
    std::fprintf(stderr, "%s: standard output could not be written\n", program);
    return code == 0 ? 1 : code;
}

}  // namespace tandem
