// How large a part of tokenizer.json may make a text: six replacements of a letter by a thousand would fill any memory.
#pragma once

#include <cstddef>

namespace tandem::tokenizer {

class Growth {
  public:
    // What `part`, its key in tokenizer.json, may make of a text of `given` bytes. Normal forms of Unicode make up to
    // 11 bytes of one, byte-level characters 2, a "▁" is 3.
    Growth(const char* part, std::size_t given)
        : part_(part), given_(given), most_((std::size_t{1} << 16) + 64 * given) {}

    void check(std::size_t bytes) const {  // throws BadInput: more than that
        if (bytes > most_) fail();
    }

  private:
    [[noreturn]] void fail() const;

    const char* part_;
    std::size_t given_, most_;
};

}  // namespace tandem::tokenizer
