#include "common/tokenizer/decoder.h"

#include <charconv>

#include "common/error.h"
#include "common/tokenizer/byte_level.h"
#include "common/tokenizer/metaspace.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/pattern.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer {
namespace {

class ByteLevel : public TokenDecoder {
  public:
    void apply(std::vector<std::string>& tokens, const Growth&) const override {
        std::string bytes;
        for (const std::string& token : tokens) bytes += bytes_of_characters(token).value_or(token);
        tokens = {to_valid_utf8(bytes)};
    }
};

class Metaspace : public TokenDecoder {
  public:
    explicit Metaspace(MetaspaceOptions options)
        : options_(std::move(options)), pattern_(options_.replacement) {}
    void apply(std::vector<std::string>& tokens, const Growth& growth) const override {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            tokens[i] =
                pattern_.replace(tokens[i], i == 0 && options_.prepend != Prepend::never ? "" : " ", growth);
        }
    }

  private:
    MetaspaceOptions options_;
    Pattern pattern_;
};

// <0xE2><0x82><0xAC> becomes one token; bytes that are not UTF-8 become one U+FFFD each.
class ByteFallback : public TokenDecoder {
  public:
    void apply(std::vector<std::string>& tokens, const Growth&) const override {
        std::vector<std::string> out;
        std::string bytes;
        const auto flush = [&] {
            if (bytes.empty()) return;
            if (is_valid_utf8(bytes)) {
                out.push_back(bytes);
            } else {
                out.insert(out.end(), bytes.size(), "\uFFFD");
            }
            bytes.clear();
        };
        for (std::string& token : tokens) {
            if (const int byte = byte_of(token); byte >= 0) {
                bytes.push_back(static_cast<char>(byte));
            } else {
                flush();
                out.push_back(std::move(token));
            }
        }
        flush();
        tokens = std::move(out);
    }

  private:
    static int byte_of(const std::string& token) {
        if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
        int byte = -1;
        const char* end = token.data() + 5;
        const auto [stop, error] = std::from_chars(token.data() + 3, end, byte, 16);
        return error == std::errc() && stop == end && byte >= 0 ? byte : -1;
    }
};

class Fuse : public TokenDecoder {
  public:
    void apply(std::vector<std::string>& tokens, const Growth&) const override {
        std::string all;
        for (const std::string& token : tokens) all += token;
        tokens = {std::move(all)};
    }
};

class Replace : public TokenDecoder {
  public:
    explicit Replace(const JsonField& field)
        : pattern_(read_pattern(field.at("pattern"))), content_(field.at("content").text()) {}
    void apply(std::vector<std::string>& tokens, const Growth& growth) const override {
        std::size_t made = 0;
        for (std::string& token : tokens) {
            token = pattern_.replace(token, content_, growth, made);
            made += token.size();
        }
    }

  private:
    Pattern pattern_;
    std::string content_;
};

// Takes up to `start` times the character from each token's head and up to `stop` times from its tail.
class Strip : public TokenDecoder {
  public:
    explicit Strip(const JsonField& field)
        : start_(field.at("start").integer(0, 1 << 20)), stop_(field.at("stop").integer(0, 1 << 20)) {
        append_utf8(content_, field.at("content").character());
    }
    void apply(std::vector<std::string>& tokens, const Growth&) const override {
        for (std::string& token : tokens) {
            std::string_view rest = token;
            for (std::int64_t i = 0; i < start_ && rest.starts_with(content_); ++i) {
                rest.remove_prefix(content_.size());
            }
            for (std::int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) {
                rest.remove_suffix(content_.size());
            }
            token = std::string(rest);
        }
    }

  private:
    std::string content_;
    std::int64_t start_, stop_;
};

class Sequence : public TokenDecoder {
  public:
    explicit Sequence(std::vector<std::unique_ptr<TokenDecoder>> parts) : parts_(std::move(parts)) {}
    void apply(std::vector<std::string>& tokens, const Growth& growth) const override {
        for (const auto& part : parts_) part->apply(tokens, growth);
    }

  private:
    std::vector<std::unique_ptr<TokenDecoder>> parts_;
};

}  // namespace

std::unique_ptr<TokenDecoder> make_decoder(const JsonField& field, int depth) {
    if (depth > kDeepestSequence) field.fail("sequences are nested too deep");
    const std::string type = field.at("type").text();
    if (type == "ByteLevel") return std::make_unique<ByteLevel>();
    if (type == "Metaspace") return std::make_unique<Metaspace>(read_metaspace(field));
    if (type == "ByteFallback") return std::make_unique<ByteFallback>();
    if (type == "Fuse") return std::make_unique<Fuse>();
    if (type == "Replace") return std::make_unique<Replace>(field);
    if (type == "Strip") return std::make_unique<Strip>(field);
    if (type == "Sequence") {
        std::vector<std::unique_ptr<TokenDecoder>> parts;
        for (const JsonField& part : field.at("decoders").items()) {
            parts.push_back(make_decoder(part, depth + 1));
        }
        return std::make_unique<Sequence>(std::move(parts));
    }
    field.at("type").fail(
        fmt::format("\"{}\" is not supported; supported: ByteLevel, Metaspace, ByteFallback, Fuse, Replace, "
                    "Strip, Sequence",
                    type));
}

}  // namespace tandem::tokenizer
