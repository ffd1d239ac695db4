// "decoder" of tokenizer.json: how tokens become text again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/tokenizer/growth.h"
#include "common/tokenizer/json_field.h"

namespace tandem::tokenizer {

class TokenDecoder {
  public:
    virtual ~TokenDecoder() = default;
    virtual void apply(std::vector<std::string>& tokens,
                       const Growth& growth) const = 0;  // their concatenation is the text
};

// ByteLevel Metaspace ByteFallback Fuse Replace Strip Sequence; any other type is a ConfigError.
std::unique_ptr<TokenDecoder> make_decoder(const JsonField& field, int depth = 0);

}  // namespace tandem::tokenizer
