#include "common/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/json_text.h"
#include "common/text_file.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/conversation.h"
#include "common/tokenizer/decoder.h"
#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/post_processor.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/special_tokens.h"
#include "common/tokenizer/utf8.h"
#include "common/tokenizer/word_cache.h"

namespace tandem::tokenizer {

// --- the parts, as tokenizer.json lists them

struct Tokenizer::Parts {
    explicit Parts(const JsonField& file)
        : normalizer(file.find("normalizer") ? make_normalizer(*file.find("normalizer")) : nullptr),
          pre_tokenizer(file.find("pre_tokenizer") ? make_pre_tokenizer(*file.find("pre_tokenizer"))
                                                   : nullptr),
          model(file.at("model")),
          decoder(file.find("decoder") ? make_decoder(*file.find("decoder")) : nullptr) {
        if (const auto field = file.find("post_processor")) post_processor.emplace(*field);
        if (const auto field = file.find("added_tokens")) {
            added = AddedTokens(*field, model, normalizer.get());
        }
    }

    void read_chat_template(const std::string& directory);
    void encode_words(std::string_view text, bool at_start, std::vector<std::int32_t>& out) const;
    void encode_word(std::string_view word, WordCache* words, std::vector<std::int32_t>& out) const;

    std::unique_ptr<Normalizer> normalizer;
    std::unique_ptr<PreTokenizer> pre_tokenizer;
    Bpe model;
    std::unique_ptr<TokenDecoder> decoder;
    std::optional<PostProcessor> post_processor;
    AddedTokens added;
    SpecialTokens special;
    std::optional<ChatTemplate> chat;
    std::optional<ConfigError> chat_problem;  // said when a conversation comes: plain text needs no template
    mutable std::mutex cache_mutex;           // a thread that finds it taken works without the cache
    mutable WordCache cache;
};

void Tokenizer::Parts::read_chat_template(const std::string& directory) {
    special = read_special_tokens(directory);
    chat_problem.reset();
    if (special.templates.empty()) {
        chat_problem.emplace(
            directory + "/tokenizer_config.json", "chat_template",
            "is missing: conversations need a chat template, here or in chat_template.jinja");
        return;
    }
    chat.emplace(special);
    for (const std::string& role : chat->roles()) {
        const auto token = special.find(role);
        if (token && !added.id_of(*token) && !model.id_of(*token)) {
            chat_problem.emplace(
                special.file, role,
                fmt::format("\"{}\" is not in the vocabulary of {}/tokenizer.json, and the chat "
                            "template needs it",
                            *token, directory));
        }
    }
}

// --- words to ids, remembered

void Tokenizer::Parts::encode_word(std::string_view word, WordCache* words,
                                   std::vector<std::int32_t>& out) const {
    if (words == nullptr || word.size() > WordCache::kLongestWord) return model.encode(word, out);
    WordCache::Place& place = words->place_of(word);
    if (place.word != word) {
        place.ids.clear();
        model.encode(word, place.ids);
        place.word = word;
    }
    out.insert(out.end(), place.ids.begin(), place.ids.end());
}

void Tokenizer::Parts::encode_words(std::string_view text, bool at_start,
                                    std::vector<std::int32_t>& out) const {
    Pieces pieces{std::string(text), {{0, text.size(), at_start}}};
    if (pre_tokenizer) pre_tokenizer->apply(pieces, Growth("pre_tokenizer", text.size()));
    const std::unique_lock lock(cache_mutex, std::try_to_lock);
    WordCache* words = lock.owns_lock() ? &cache : nullptr;
    for (const Piece& piece : pieces.list) encode_word(pieces.view(piece), words, out);
}

// --- reading

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

bool Tokenizer::present(const std::string& directory) {
    return std::filesystem::exists(directory + "/tokenizer.json");
}

Tokenizer Tokenizer::from_directory(const std::string& directory) {
    const std::string file = directory + "/tokenizer.json";
    if (!present(directory)) {
        throw ConfigError(file, "", "is missing: text needs a tokenizer in the model's directory");
    }
    Tokenizer tokenizer = from_json(read_text_file(file, kLargestFile), file);
    tokenizer.parts_->read_chat_template(directory);
    return tokenizer;
}

Tokenizer Tokenizer::from_json(const std::string& text, const std::string& file) {
    const nlohmann::json json = parse_json_file(text, file, RepeatedKeys::taken);
    auto parts = std::make_unique<Parts>(JsonField(json, file, ""));
    parts->chat_problem.emplace(file, "chat_template", "no template has been read");
    return Tokenizer(std::move(parts));
}

// --- text to ids, and back

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
    std::vector<std::int32_t> ids;
    std::string repaired;
    if (!is_valid_utf8(text)) text = repaired = to_valid_utf8(text);
    std::vector<AddedTokens::Segment> outer, inner;
    parts_->added.split(text, false, outer);
    std::string normalized;
    for (const AddedTokens::Segment& segment : outer) {
        if (segment.id >= 0) {
            ids.push_back(segment.id);
            continue;
        }
        normalized = text.substr(segment.begin, segment.end - segment.begin);
        if (parts_->normalizer) {
            parts_->normalizer->apply(normalized, Growth("normalizer", normalized.size()));
        }
        parts_->added.split(normalized, true, inner);
        for (const AddedTokens::Segment& part : inner) {
            if (part.id >= 0) {
                ids.push_back(part.id);
                continue;
            }
            const bool at_start = segment.begin == 0 && part.begin == 0;
            parts_->encode_words(std::string_view(normalized).substr(part.begin, part.end - part.begin),
                                 at_start, ids);
        }
    }
    if (parts_->post_processor) parts_->post_processor->apply(ids, add_special_tokens);
    return ids;
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids, bool skip_special_tokens) const {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    std::size_t bytes = 0;
    for (const std::int32_t id : ids) {
        const AddedToken* added = parts_->added.find(id);
        const std::string* text = added != nullptr ? &added->normalized_content : parts_->model.token_of(id);
        if (text == nullptr || (skip_special_tokens && parts_->added.is_special(*text))) continue;
        tokens.push_back(*text);
        bytes += text->size();
    }
    if (parts_->decoder) parts_->decoder->apply(tokens, Growth("decoder", bytes));
    std::string out;
    for (const std::string& token : tokens) {
        if (!parts_->decoder && !out.empty()) out += ' ';
        out += token;
    }
    return out;
}

// --- the vocabulary

std::optional<std::int32_t> Tokenizer::token_id(std::string_view token) const {
    const auto added = parts_->added.id_of(token);
    return added ? added : parts_->model.id_of(token);
}

std::optional<std::string> Tokenizer::token(std::int32_t id) const {
    if (const AddedToken* added = parts_->added.find(id)) return added->content;
    const std::string* text = parts_->model.token_of(id);
    return text == nullptr ? std::nullopt : std::optional(*text);
}

std::size_t Tokenizer::vocab_size() const {
    std::int32_t largest = parts_->model.largest_id();
    for (const AddedToken& added : parts_->added.all()) largest = std::max(largest, added.id);
    return static_cast<std::size_t>(largest + 1);
}

std::optional<std::string> Tokenizer::special_token(std::string_view name) const {
    return parts_->special.find(name);
}

// --- conversations

bool Tokenizer::has_chat_template() const {
    return !parts_->special.templates.empty();
}

void Tokenizer::check_chat_template() const {
    if (parts_->chat_problem) throw ConfigError(*parts_->chat_problem);
    parts_->chat->check();
}

std::string Tokenizer::apply_chat_template(const std::vector<Message>& messages,
                                           bool add_generation_prompt) const {
    jinja::Runtime unlimited(jinja::Limits::none());
    Conversation conversation;
    conversation.add_generation_prompt = add_generation_prompt;
    for (const Message& message : messages) {
        jinja::Dict entries;
        entries.put(unlimited, "role", message.role);
        entries.put(unlimited, "content", to_valid_utf8(message.content));
        conversation.messages.push_back(jinja::Value::dict(unlimited, std::move(entries)));
    }
    return apply_chat_template(conversation);
}

std::string Tokenizer::apply_chat_template(const Conversation& conversation) const {
    if (parts_->chat_problem) throw ConfigError(*parts_->chat_problem);
    return parts_->chat->render(conversation);
}

}  // namespace tandem::tokenizer
