// The tokens that end a completion: what the model directory names, and what its chat template puts behind an
// assistant's words.
#pragma once

#include <string>

#include "trainer/data/text_codec.h"

namespace tandem::trainer {

// Each once; first the one that a taught completion ends with: the template's end of turn, else the
// tokenizer's eos. Reads eos_token_id of DIR/generation_config.json and DIR/config.json where they are.
// Throws ConfigError: one of them is malformed, or there is no such token at all.
std::vector<std::int32_t> stop_tokens_of(const std::string& directory, const TextCodec& codec);

}  // namespace tandem::trainer
