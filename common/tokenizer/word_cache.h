// Words that were encoded before. A fixed number of places, each overwritten by the next word there, so that
// memory stays bounded and forgetting costs nothing. Not thread-safe.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::tokenizer {

class WordCache {
  public:
    static constexpr std::size_t kLongestWord = 64;  // bytes; longer ones seldom come twice

    struct Place {
        std::string word;
        std::vector<std::int32_t> ids;
    };
    Place& place_of(std::string_view word) {
        return places_[XXH3_64bits(word.data(), word.size()) % places_.size()];
    }

  private:
    std::vector<Place> places_ = std::vector<Place>(std::size_t{1} << 13);
};

}  // namespace tandem::tokenizer
