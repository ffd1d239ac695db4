#include "trainer/data/text_codec.h"

#include "common/tokenizer/tokenizer.h"

namespace tandem::trainer {
namespace {

class TokenizerCodec final : public TextCodec {
  public:
    explicit TokenizerCodec(const std::string& directory)
        : tokenizer_(tokenizer::Tokenizer::from_directory(directory)) {
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
    std::optional<std::int32_t> eos_token() const override {
        const auto eos = tokenizer_.special_token("eos");
        return eos ? tokenizer_.token_id(*eos) : std::nullopt;
    }
    std::int64_t vocab_size() const override { return static_cast<std::int64_t>(tokenizer_.vocab_size()); }

  private:
    tokenizer::Tokenizer tokenizer_;
};

}  // namespace

std::shared_ptr<const TextCodec> tokenizer_codec(const std::string& directory) {
    return std::make_shared<TokenizerCodec>(directory);
}

}  // namespace tandem::trainer
