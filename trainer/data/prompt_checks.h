// What is found wrong with many lines of a prompts file: counted, the first ones kept with their places.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/text_codec.h"

namespace tandem::trainer {

class Findings {
  public:
    void add(std::string place, std::string what = {});
    std::int64_t count() const { return count_; }
    bool empty() const { return count_ == 0; }
    std::string first_place() const { return kept_.front().place; }  // not of empty ones
    std::string first() const { return kept_.front().what; }
    // "p.jsonl:3, p.jsonl:9, p.jsonl:12 and 4 more"
    std::string places() const;
    // "\n" and "p.jsonl:9: what" of each that is kept, from the one at `start`.
    std::string lines(std::size_t start = 0) const;

  private:
    struct Finding {
        std::string place, what;
    };
    std::int64_t count_ = 0;
    std::vector<Finding> kept_;  // three at most
};

// Text of a file in a message: in quotes, on one line, its start alone where it is long.
std::string in_quotes(std::string_view text);

// The special tokens that the chat template writes around a user's words, as text: "<|im_start|>". A prompt
// that holds one has been through a template already. Empty without a template.
std::vector<std::string> template_tokens(const TextCodec& codec);
// The first of them that the text holds, or empty.
std::string_view token_in(std::string_view text, const std::vector<std::string>& tokens);

}  // namespace tandem::trainer
