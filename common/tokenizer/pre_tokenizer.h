// "pre_tokenizer" of tokenizer.json: how normalised text is cut into the pieces that BPE sees one by one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/tokenizer/growth.h"
#include "common/tokenizer/json_field.h"

namespace tandem::tokenizer {

struct Piece {
    std::size_t begin = 0;  // [begin, end) of the text; never empty
    std::size_t end = 0;
    bool at_start = false;  // of what the user gave: nothing but it came before
};

struct Pieces {
    std::string text;
    std::vector<Piece> list;

    std::string_view view(const Piece& piece) const {
        return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
    }
};

class PreTokenizer {
  public:
    virtual ~PreTokenizer() = default;
    virtual void apply(Pieces& pieces, const Growth& growth) const = 0;
};

// ByteLevel Split Digits Whitespace WhitespaceSplit Punctuation Metaspace Sequence; any other is a
// ConfigError.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonField& field, int depth = 0);

}  // namespace tandem::tokenizer
