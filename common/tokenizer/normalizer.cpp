#include "common/tokenizer/normalizer.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include <vector>

#include "common/error.h"
#include "common/tokenizer/pattern.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer {
namespace {

// Made once: going through all of Unicode takes milliseconds.
const icu::UnicodeSet& known_characters() {
    static const icu::UnicodeSet kKnown = [] {
        UErrorCode status = U_ZERO_ERROR;
        icu::UnicodeSet set("[:age=9.0:]", status);
        require(U_SUCCESS(status) != 0, "ICU cannot list the characters of Unicode 9: {}",
                u_errorName(status));
        return set;
    }();
    return kKnown;
}

// NFC and its like, with the characters of Unicode 9: the tables of the reference end there.
class Unicode : public Normalizer {
  public:
    Unicode(const char* data, UNormalization2Mode mode) {
        UErrorCode status = U_ZERO_ERROR;
        const icu::Normalizer2* form = icu::Normalizer2::getInstance(nullptr, data, mode, status);
        if (U_SUCCESS(status)) form_ = std::make_unique<icu::FilteredNormalizer2>(*form, known_characters());
        require(U_SUCCESS(status) != 0, "ICU has no normalisation {}: {}", data, u_errorName(status));
    }
    void apply(std::string& text, const Growth&) const override {
        bool ascii = true;
        for (const char c : text) ascii = ascii && static_cast<signed char>(c) >= 0;
        if (ascii) return;
        std::string out;
        UErrorCode status = U_ZERO_ERROR;
        icu::StringByteSink<std::string> sink(&out, static_cast<std::int32_t>(text.size()));
        form_->normalizeUTF8(0, text, sink, nullptr, status);
        require(U_SUCCESS(status) != 0, "ICU cannot normalise a text: {}", u_errorName(status));
        text = std::move(out);
    }

  private:
    std::unique_ptr<icu::FilteredNormalizer2> form_;
};

// ICU 72 does not know the capitals that came with Unicode 16 and 17.
char32_t lower_of(char32_t c) {
    struct Range {
        char32_t first, last, lower;
    };
    static constexpr Range kNewer[] = {
        {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x0264}, {0xA7CC, 0xA7CC, 0xA7CD},
        {0xA7CE, 0xA7CE, 0xA7CF},    {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
        {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x019B}, {0x10D50, 0x10D65, 0x10D70},
        {0x16EA0, 0x16EB8, 0x16EBB},
    };
    for (const Range& range : kNewer) {
        if (c >= range.first && c <= range.last) return range.lower + (c - range.first);
    }
    return static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
}

// Character by character, so a final sigma becomes a plain one.
class Lowercase : public Normalizer {
  public:
    void apply(std::string& text, const Growth&) const override {
        std::string out;
        for (std::size_t at = 0; at < text.size();) {
            const char32_t c = next_code_point(text, at);
            if (c == 0x130) {
                out += "i\u0307";
            } else {
                append_utf8(out, lower_of(c));
            }
        }
        text = std::move(out);
    }
};

class ReplaceNormalizer : public Normalizer {
  public:
    explicit ReplaceNormalizer(const JsonField& field)
        : pattern_(read_pattern(field.at("pattern"))), content_(field.at("content").text()) {}
    void apply(std::string& text, const Growth& growth) const override {
        text = pattern_.replace(text, content_, growth);
    }

  private:
    Pattern pattern_;
    std::string content_;
};

class PrependNormalizer : public Normalizer {
  public:
    explicit PrependNormalizer(std::string text) : text_(std::move(text)) {}
    void apply(std::string& text, const Growth& growth) const override {
        if (text.empty()) return;
        growth.check(text.size() + text_.size());
        text.insert(0, text_);
    }

  private:
    std::string text_;
};

class StripNormalizer : public Normalizer {
  public:
    StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
    void apply(std::string& text, const Growth&) const override {
        std::size_t begin = 0, end = text.size();
        for (std::size_t at = begin; left_ && at < end; begin = at) {
            if (!is_white_space(next_code_point(text, at))) break;
        }
        for (std::size_t at = end; right_ && at > begin; end = at) {
            if (!is_white_space(previous_code_point(text, at))) break;
        }
        text = text.substr(begin, end - begin);
    }

  private:
    bool left_, right_;
};

class StripAccents : public Normalizer {
  public:
    void apply(std::string& text, const Growth&) const override {
        std::string out;
        for (std::size_t at = 0; at < text.size();) {
            const char32_t c = next_code_point(text, at);
            if (!is_mark(c)) append_utf8(out, c);
        }
        text = std::move(out);
    }
};

class SequenceNormalizer : public Normalizer {
  public:
    explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
    void apply(std::string& text, const Growth& growth) const override {
        for (const auto& part : parts_) {
            part->apply(text, growth);
            growth.check(text.size());
        }
    }

  private:
    std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const JsonField& field, int depth) {
    if (depth > kDeepestSequence) field.fail("sequences are nested too deep");
    const std::string type = field.at("type").text();
    if (type == "NFC") return std::make_unique<Unicode>("nfc", UNORM2_COMPOSE);
    if (type == "NFD") return std::make_unique<Unicode>("nfc", UNORM2_DECOMPOSE);
    if (type == "NFKC") return std::make_unique<Unicode>("nfkc", UNORM2_COMPOSE);
    if (type == "NFKD") return std::make_unique<Unicode>("nfkc", UNORM2_DECOMPOSE);
    if (type == "Lowercase") return std::make_unique<Lowercase>();
    if (type == "Replace") return std::make_unique<ReplaceNormalizer>(field);
    if (type == "Prepend") return std::make_unique<PrependNormalizer>(field.at("prepend").text());
    if (type == "Strip")
        return std::make_unique<StripNormalizer>(field.at("strip_left").flag(),
                                                 field.at("strip_right").flag());
    if (type == "StripAccents") return std::make_unique<StripAccents>();
    if (type == "Sequence") {
        std::vector<std::unique_ptr<Normalizer>> parts;
        for (const JsonField& part : field.at("normalizers").items()) {
            parts.push_back(make_normalizer(part, depth + 1));
        }
        return std::make_unique<SequenceNormalizer>(std::move(parts));
    }
    field.at("type").fail(fmt::format(
        "\"{}\" is not supported; supported: NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend, Strip, "
        "StripAccents, Sequence",
        type));
}

}  // namespace tandem::tokenizer
