// "model" of tokenizer.json, type BPE: pieces of text into ids by merging neighbours, the merge of lowest
// rank first and the leftmost among equals (Sennrich et al. 2016, as Hugging Face `tokenizers` does it).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/tokenizer/json_field.h"
#include "common/tokenizer/merge_table.h"

namespace tandem::tokenizer {

struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Vocabulary = std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>>;

class Bpe {
  public:
    explicit Bpe(const JsonField& field);  // throws ConfigError

    void encode(std::string_view piece, std::vector<std::int32_t>& out) const;
    std::optional<std::int32_t> id_of(std::string_view token) const;
    const std::string* token_of(std::int32_t id) const;  // nullptr: none
    std::size_t size() const { return vocabulary_.size(); }
    std::int32_t largest_id() const { return static_cast<std::int32_t>(tokens_.size()) - 1; }

  private:
    void read_vocabulary(const JsonField& field);
    void read_merges(const JsonField& field);
    void first_symbols(std::string_view piece, std::vector<std::int32_t>& symbols) const;

    Vocabulary vocabulary_;
    std::vector<const std::string*> tokens_;  // by id
    MergeTable merges_;
    std::vector<std::int32_t> bytes_;  // of <0x00> … <0xFF>, -1: none; empty without byte_fallback
    std::optional<std::int32_t> unknown_;
    std::string prefix_, suffix_;  // continuing_subword_prefix, end_of_word_suffix
    bool fuse_unknown_ = false;
    bool ignore_merges_ = false;
};

}  // namespace tandem::tokenizer
