#include "trainer/data/text_codec.h"

#include <array>

#include "common/error.h"
#include "common/tokenizer/stop_tokens.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::trainer {
namespace {

class TokenizerCodec final : public TextCodec {
  public:
    explicit TokenizerCodec(const std::string& directory)
        : tokenizer_(tokenizer::Tokenizer::from_directory(directory)),
          ends_(tokenizer::ends_of(tokenizer_, directory)) {
        if (tokenizer_.has_chat_template()) tokenizer_.check_chat_template();
    }

    Tokens encode(const std::string& text, bool add_special_tokens) const override {
        return tokenizer_.encode(text, add_special_tokens);
    }
    std::string decode(std::span<const std::int32_t> tokens, bool skip_special_tokens) const override {
        return tokenizer_.decode({tokens.begin(), tokens.end()}, skip_special_tokens);
    }
    bool has_chat_template() const override { return tokenizer_.has_chat_template(); }
    std::string render(const std::vector<ChatTurn>& turns, bool add_generation_prompt) const override {
        std::vector<tokenizer::Message> messages;
        for (const ChatTurn& turn : turns) messages.push_back({turn.role, turn.content});
        return tokenizer_.apply_chat_template(messages, add_generation_prompt);
    }
    std::optional<std::int32_t> eos_token() const override { return ends_.eos; }
    std::optional<std::int32_t> end_of_turn() const override { return ends_.end_of_turn; }
    std::int64_t vocab_size() const override { return static_cast<std::int64_t>(tokenizer_.vocab_size()); }

  private:
    tokenizer::Tokenizer tokenizer_;
    tokenizer::TokenizerEnds ends_;
};

}  // namespace

std::shared_ptr<const TextCodec> tokenizer_codec(const std::string& directory) {
    return std::make_shared<TokenizerCodec>(directory);
}

StopTokens stop_tokens_of(const std::string& directory, const TextCodec& codec, std::int64_t vocab_size) {
    const auto tokens =
        tokenizer::stop_tokens(directory, {codec.end_of_turn(), codec.eos_token()}, vocab_size);
    if (tokens.empty()) {
        throw ConfigError(directory, "eos_token_id",
                          "neither tokenizer_config.json, generation_config.json nor config.json names a "
                          "token that ends a text");
    }
    const auto spelled = [&](std::int32_t id) { return codec.decode(std::array{id}, false); };
    return {tokenizer::ids_of(tokens), tokenizer::to_string(tokens, spelled)};
}

}  // namespace tandem::trainer
