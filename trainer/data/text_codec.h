// The tokenizer interface of a text task, implemented by the tokenizer of a model directory
// (tokenizer_codec).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/task.h"
#include "trainer/data/text_problem.h"

namespace tandem::trainer {

// Immutable and thread-safe.
class TextCodec {
  public:
    virtual ~TextCodec() = default;
    virtual Tokens encode(const std::string& text, bool add_special_tokens) const = 0;
    virtual std::string decode(std::span<const std::int32_t> tokens, bool skip_special_tokens) const = 0;
    virtual bool has_chat_template() const = 0;
    // Throws what the template raises ("roles must alternate").
    virtual std::string render(const std::vector<ChatTurn>& turns, bool add_generation_prompt) const = 0;
    virtual std::optional<std::int32_t> eos_token() const = 0;  // the tokenizer's own
    // The special token that the template writes behind an assistant's words.
    virtual std::optional<std::int32_t> end_of_turn() const = 0;
    virtual std::int64_t vocab_size() const = 0;
};

// The codec of a directory with tokenizer.json. Throws ConfigError naming file and key.
std::shared_ptr<const TextCodec> tokenizer_codec(const std::string& directory);

struct StopTokens {
    std::vector<std::int32_t> ids;
    std::string sources;  // where each comes from, for people
};
// The tokens that end a completion, each once, as common/tokenizer/stop_tokens.h finds them for the engine
// too: the first, which a taught completion ends with, is the template's end of turn, else the tokenizer's
// eos. directory: whose generation_config.json and config.json count; vocab_size: the model's. Throws
// ConfigError when one of them is malformed, or when there is no such token at all.
StopTokens stop_tokens_of(const std::string& directory, const TextCodec& codec, std::int64_t vocab_size);

}  // namespace tandem::trainer
