// "added_tokens" of tokenizer.json: tokens that are found in the text before anything else cuts it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/tokenizer/bpe.h"
#include "common/tokenizer/json_field.h"
#include "common/tokenizer/normalizer.h"

namespace tandem::tokenizer {

struct AddedToken {
    std::int32_t id = -1;
    std::string content;
    std::string normalized_content;       // what is looked for, and what is decoded
    bool single_word = false;             // only where no word character touches it
    bool lstrip = false, rstrip = false;  // takes the white space on that side with it
    bool normalized = false;              // looked for in normalised text, otherwise in the text as given
    bool special = false;                 // may be skipped in decoding
};

// Finds, from left to right, the longest of several strings.
class TokenMatcher {
  public:
    void add(std::string_view text, std::size_t value);  // not empty; the first of equal texts stays
    bool empty() const { return nodes_.size() == 1; }
    // The longest match that starts at text[at]; nullopt: none. Its length goes to `length`.
    std::optional<std::size_t> match(std::string_view text, std::size_t at, std::size_t& length) const;

  private:
    struct Node {
        std::vector<std::pair<unsigned char, std::uint32_t>> next;  // sorted
        std::optional<std::size_t> value;
    };
    std::vector<Node> nodes_ = std::vector<Node>(1);
    std::array<bool, 256> starts_{};
};

class AddedTokens {
  public:
    // [begin, end) of the text is this token, or, with id -1, ordinary text.
    struct Segment {
        std::size_t begin = 0;
        std::size_t end = 0;
        std::int32_t id = -1;
    };

    AddedTokens() = default;
    // Ids follow from the content: the model's own where it has the token, otherwise the next free one. One
    // that the file states differently is a ConfigError.
    AddedTokens(const JsonField& list, const Bpe& model, const Normalizer* normalizer);

    void split(std::string_view text, bool normalized, std::vector<Segment>& segments) const;

    std::optional<std::int32_t> id_of(std::string_view content) const;
    const AddedToken* find(std::int32_t id) const;  // nullptr: none
    bool is_special(std::string_view content) const { return special_.count(std::string(content)) > 0; }
    const std::vector<AddedToken>& all() const { return tokens_; }

  private:
    std::vector<AddedToken> tokens_;
    std::map<std::string, std::size_t, std::less<>> by_content_;
    std::unordered_map<std::int32_t, std::size_t> by_id_;
    std::unordered_set<std::string> special_;
    TokenMatcher plain_, normalized_;
};

}  // namespace tandem::tokenizer
