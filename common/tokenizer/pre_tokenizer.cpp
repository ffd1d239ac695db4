#include "common/tokenizer/pre_tokenizer.h"

#include "common/error.h"
#include "common/tokenizer/byte_level.h"
#include "common/tokenizer/metaspace.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/pattern.h"
#include "common/tokenizer/split.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer {
namespace {

// GPT-2's: https://github.com/openai/gpt-2/blob/master/src/encoder.py
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Rewrites every piece: write(view, piece, out) appends what the piece becomes.
template <typename Write>
void rewrite(Pieces& pieces, const Growth& growth, const Write& write) {
    std::string out;
    out.reserve(pieces.text.size() * 3 / 2 + 8);
    for (Piece& piece : pieces.list) {
        const std::size_t begin = out.size();
        write(pieces.view(piece), piece, out);
        growth.check(out.size());
        piece.begin = begin;
        piece.end = out.size();
    }
    pieces.text = std::move(out);
}

// --- one class a type of pre-tokenizer

class ByteLevelPreTokenizer : public PreTokenizer {
  public:
    ByteLevelPreTokenizer(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
        if (use_regex) regex_.emplace(kGpt2);
    }
    void apply(Pieces& pieces, const Growth& growth) const override {
        if (add_prefix_space_) {
            rewrite(pieces, growth, [](std::string_view text, const Piece&, std::string& out) {
                if (text.front() != ' ') out += ' ';
                out += text;
            });
        }
        if (regex_) {
            split_pieces(
                pieces, [this](std::string_view text, std::vector<Match>& out) { regex_->split(text, out); },
                Behavior::isolated);
        }
        rewrite(pieces, growth, [](std::string_view text, const Piece&, std::string& out) {
            append_byte_characters(out, text);
        });
    }

  private:
    bool add_prefix_space_;
    std::optional<Regex> regex_;
};

class Split : public PreTokenizer {
  public:
    explicit Split(const JsonField& field)
        : pattern_(read_pattern(field.at("pattern"))),
          behavior_(read_behavior(field.at("behavior"))),
          invert_(field.flag("invert", false)) {}
    void apply(Pieces& pieces, const Growth&) const override {
        split_pieces(
            pieces,
            [this](std::string_view text, std::vector<Match>& out) {
                pattern_.split(text, out);
                for (Match& m : out) m.match = m.match != invert_;
            },
            behavior_);
    }

  private:
    Pattern pattern_;
    Behavior behavior_;
    bool invert_;
};

class SplitAtCharacters : public PreTokenizer {
  public:
    SplitAtCharacters(bool (*wanted)(char32_t), Behavior behavior) : wanted_(wanted), behavior_(behavior) {}
    void apply(Pieces& pieces, const Growth&) const override {
        split_pieces(
            pieces,
            [this](std::string_view text, std::vector<Match>& out) { match_characters(text, wanted_, out); },
            behavior_);
    }

  private:
    bool (*wanted_)(char32_t);
    Behavior behavior_;
};

// Runs of word characters, and runs of what is neither word nor white space.
class Whitespace : public PreTokenizer {
  public:
    void apply(Pieces& pieces, const Growth&) const override {
        const auto kind = [](char32_t c) { return is_word(c) ? 1 : is_white_space(c) ? 0 : 2; };
        split_pieces(
            pieces,
            [&](std::string_view text, std::vector<Match>& out) {
                out.clear();
                int last = -1;
                for (std::size_t at = 0; at < text.size();) {
                    const std::size_t begin = at;
                    const int now = kind(next_code_point(text, at));
                    if (now != last) out.push_back({begin, at, now == 0});
                    out.back().end = at;
                    last = now;
                }
            },
            Behavior::removed);
    }
};

class MetaspacePreTokenizer : public PreTokenizer {
  public:
    explicit MetaspacePreTokenizer(MetaspaceOptions options)
        : options_(std::move(options)), pattern_(options_.replacement) {}
    void apply(Pieces& pieces, const Growth& growth) const override {
        rewrite(pieces, growth, [this](std::string_view text, const Piece& piece, std::string& out) {
            const std::string& mark = options_.replacement;
            const bool wanted =
                options_.prepend == Prepend::always || (options_.prepend == Prepend::first && piece.at_start);
            if (wanted && text.front() != ' ' && !text.starts_with(mark)) out += mark;
            for (const char c : text) {
                if (c == ' ') {
                    out += mark;
                } else {
                    out += c;
                }
            }
        });
        if (!options_.split) return;
        split_pieces(
            pieces, [this](std::string_view text, std::vector<Match>& out) { pattern_.split(text, out); },
            Behavior::merged_next);
    }

  private:
    MetaspaceOptions options_;
    Pattern pattern_;
};

class SequencePreTokenizer : public PreTokenizer {
  public:
    explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts)
        : parts_(std::move(parts)) {}
    void apply(Pieces& pieces, const Growth& growth) const override {
        for (const auto& part : parts_) part->apply(pieces, growth);
    }

  private:
    std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

}  // namespace

// --- which of them tokenizer.json asks for

MetaspaceOptions read_metaspace(const JsonField& field) {
    MetaspaceOptions options;
    field.at("replacement").character();
    options.replacement = field.at("replacement").text();
    options.split = field.flag("split", true);
    const auto scheme = field.find("prepend_scheme");
    if (scheme) {
        const std::string name = scheme->text();
        if (name == "first") {
            options.prepend = Prepend::first;
        } else if (name == "never") {
            options.prepend = Prepend::never;
        } else if (name != "always") {
            scheme->fail("must be always, first or never");
        }
    }
    if (!field.flag("add_prefix_space", true)) {
        if (scheme && options.prepend != Prepend::never) scheme->fail("contradicts add_prefix_space = false");
        options.prepend = Prepend::never;
    }
    return options;
}

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonField& field, int depth) {
    if (depth > kDeepestSequence) field.fail("sequences are nested too deep");
    const std::string type = field.at("type").text();
    if (type == "ByteLevel") {
        return std::make_unique<ByteLevelPreTokenizer>(field.flag("add_prefix_space", true),
                                                       field.flag("use_regex", true));
    }
    if (type == "Split") return std::make_unique<Split>(field);
    if (type == "Digits") {
        const bool each = field.flag("individual_digits", false);
        return std::make_unique<SplitAtCharacters>(is_numeric,
                                                   each ? Behavior::isolated : Behavior::contiguous);
    }
    if (type == "Whitespace") return std::make_unique<Whitespace>();
    if (type == "WhitespaceSplit")
        return std::make_unique<SplitAtCharacters>(is_white_space, Behavior::removed);
    if (type == "Punctuation") {
        const auto behavior = field.find("behavior");
        return std::make_unique<SplitAtCharacters>(is_punctuation,
                                                   behavior ? read_behavior(*behavior) : Behavior::isolated);
    }
    if (type == "Metaspace") return std::make_unique<MetaspacePreTokenizer>(read_metaspace(field));
    if (type == "Sequence") {
        std::vector<std::unique_ptr<PreTokenizer>> parts;
        for (const JsonField& part : field.at("pretokenizers").items()) {
            parts.push_back(make_pre_tokenizer(part, depth + 1));
        }
        return std::make_unique<SequencePreTokenizer>(std::move(parts));
    }
    field.at("type").fail(fmt::format(
        "\"{}\" is not supported; supported: ByteLevel, Split, Digits, Whitespace, WhitespaceSplit, "
        "Punctuation, Metaspace, Sequence",
        type));
}

}  // namespace tandem::tokenizer
