// "normalizer" of tokenizer.json: what happens to text before it is cut into pieces.
#pragma once

#include <memory>
#include <string>

#include "common/tokenizer/growth.h"
#include "common/tokenizer/json_field.h"

namespace tandem::tokenizer {

class Normalizer {
  public:
    virtual ~Normalizer() = default;
    virtual void apply(std::string& text, const Growth& growth) const = 0;  // valid UTF-8, in and out
};

// NFC NFD NFKC NFKD Lowercase Replace Prepend Strip StripAccents Sequence; any other type is a ConfigError.
std::unique_ptr<Normalizer> make_normalizer(const JsonField& field, int depth = 0);

constexpr int kDeepestSequence = 16;  // of sequences within sequences

}  // namespace tandem::tokenizer
