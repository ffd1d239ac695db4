// SentencePiece's "▁" for a space: options shared by the pre-tokenizer and the decoder of that name.
#pragma once

#include <string>

#include "common/tokenizer/json_field.h"

namespace tandem::tokenizer {

enum class Prepend : std::uint8_t { always, first, never };

struct MetaspaceOptions {
    std::string replacement;
    Prepend prepend = Prepend::always;
    bool split = true;
};
MetaspaceOptions read_metaspace(const JsonField& field);

}  // namespace tandem::tokenizer
