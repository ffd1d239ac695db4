#include "trainer/data/text_codec.h"

#include "common/error.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::trainer {
namespace {

class TokenizerCodec final : public TextCodec {
  public:
    explicit TokenizerCodec(const std::string& directory)
        : tokenizer_(tokenizer::Tokenizer::from_directory(directory)) {}

    Tokens encode(const std::string& text, bool add_special_tokens) const override {
        return tokenizer_.encode(text, add_special_tokens);
    }
    std::string decode(std::span<const std::int32_t> tokens, bool skip_special_tokens) const override {
        return tokenizer_.decode({tokens.begin(), tokens.end()}, skip_special_tokens);
    }
    bool has_chat_template() const override { return false; }
    std::string render(const std::vector<ChatTurn>&, bool) const override {
        throw Error("the tokenizer has no chat template");
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
