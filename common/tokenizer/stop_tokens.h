// Which tokens end a text: what all files of a model's directory say together. One list for engine, trainer
// and checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"

namespace tandem::tokenizer {

struct StopToken {
    std::int32_t id = 0;
    std::string from;  // "chat template, config.json"
};

// What a tokenizer says by itself.
struct TokenizerEnds {
    std::optional<std::int32_t>
        end_of_turn;  // that the chat template writes behind an assistant's words; a special token
    std::optional<std::int32_t> eos;  // eos_token of tokenizer_config.json
};
// An eos_token that is not in the vocabulary is warned of.
TokenizerEnds ends_of(const Tokenizer& tokenizer, const std::string& directory);

// Each once, in this order: the end of turn, the tokenizer's eos, eos_token_id of DIR/generation_config.json
// and of DIR/config.json (one id, a list or null), where these files are. Throws ConfigError naming file and
// key for what is no id, and for an id of config.json outside of [0, vocab_size); one of the others is left
// out with a warning.
std::vector<StopToken> stop_tokens(const std::string& directory, const TokenizerEnds& ends,
                                   std::int64_t vocab_size);

std::vector<std::int32_t> ids_of(const std::vector<StopToken>& tokens);
// "2 <|im_end|> (chat template, config.json), 0 <|endoftext|> (generation_config.json)", for logs; without
// `spelled` ids alone.
std::string to_string(const std::vector<StopToken>& tokens,
                      const std::function<std::string(std::int32_t id)>& spelled = {});

}  // namespace tandem::tokenizer
