// "post_processor" of tokenizer.json: the special tokens around an encoded text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/tokenizer/json_field.h"

namespace tandem::tokenizer {

// A template: ids that stand around (or between copies of) the text's own.
class PostProcessor {
  public:
    // ByteLevel TemplateProcessing RobertaProcessing BertProcessing Sequence; any other type is a
    // ConfigError.
    explicit PostProcessor(const JsonField& field);
    void apply(std::vector<std::int32_t>& ids, bool add_special_tokens) const;

  private:
    struct Part {
        bool text = false;              // the text itself, otherwise:
        std::vector<std::int32_t> ids;  // special tokens
    };
    using Template = std::vector<Part>;
    void add(const JsonField& field, int depth);
    Template read_template(const JsonField& field);

    std::vector<Template> templates_;
    std::size_t added_ = 0;  // tokens, by all templates
};

}  // namespace tandem::tokenizer
