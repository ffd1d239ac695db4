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
    virtual std::int64_t vocab_size() const = 0;
};

// The codec of a directory with tokenizer.json. Throws ConfigError naming file and key.
std::shared_ptr<const TextCodec> tokenizer_codec(const std::string& directory);

// The tokens that end a completion, each once. First the one that a taught completion ends with: the end of
// turn of the chat template, else the tokenizer's eos; then eos_token_id of DIR/generation_config.json and
// DIR/config.json where they are. Throws ConfigError when one of them is malformed, or when there is no such
// token at all.
std::vector<std::int32_t> stop_tokens_of(const std::string& directory, const TextCodec& codec);

}  // namespace tandem::trainer
