// Text into token ids and back, equal to Hugging Face `tokenizers`, from a model directory's tokenizer.json
// and tokenizer_config.json (and special_tokens_map.json, chat_template.jinja, additional_chat_templates/
// where they are).
//
// "truncation" and "padding" of tokenizer.json are not applied: they concern batches, not text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::tokenizer {

struct Conversation;  // conversation.h

struct Message {
    std::string role;  // system, user, assistant, tool
    std::string content;
};

class Tokenizer {
  public:
    // Throws ConfigError naming file and key: a file is missing or malformed, or asks for something unknown.
    static Tokenizer from_directory(const std::string& directory);
    // From the text of a tokenizer.json alone: no special tokens by role, no chat template. Errors name
    // `file`.
    static Tokenizer from_json(const std::string& text, const std::string& file);
    static bool present(const std::string& directory);  // there is a tokenizer.json

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    // All of the following are thread-safe. Bytes of `text` that are not UTF-8 count as U+FFFD.
    std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens) const;
    std::string decode(const std::vector<std::int32_t>& ids, bool skip_special_tokens) const;

    std::optional<std::int32_t> token_id(std::string_view token) const;
    std::optional<std::string> token(std::int32_t id) const;
    std::size_t vocab_size() const;  // one more than the largest id

    // "bos", "eos", "pad" or "unk" of tokenizer_config.json; nullopt: it names none.
    std::optional<std::string> special_token(std::string_view name) const;

    bool has_chat_template() const;
    // Throws ConfigError where there is no template, where one cannot be read, or where it names tokens
    // (bos_token, eos_token, …) that are not in the vocabulary: what apply_chat_template would find later. A
    // token that no file names is undefined to the template, as in transformers.
    void check_chat_template() const;
    // The conversation as the model's template writes it; encode it with add_special_tokens = false. Throws
    // as check_chat_template does, and BadInput where the template refuses the conversation.
    std::string apply_chat_template(const std::vector<Message>& messages, bool add_generation_prompt) const;
    // With whatever else the template reads: tool_calls, tools, enable_thinking.
    std::string apply_chat_template(const Conversation& conversation) const;

  private:
    struct Parts;
    explicit Tokenizer(std::unique_ptr<Parts> parts);
    std::unique_ptr<Parts> parts_;
};

}  // namespace tandem::tokenizer
