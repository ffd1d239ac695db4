// Oniguruma's dialect into PCRE2's: what both write alike passes, what they read differently is rewritten,
// and what this translation does not know is refused, so that no pattern splits text in silently different
// ways.
#include <cctype>
#include <vector>

#include "common/error.h"
#include "common/tokenizer/regex.h"

namespace tandem::tokenizer {
namespace {

constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\xB2\xB3\xB9\xBC-\xBE\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::string_view kGeneralCategories =
    " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp Cc Cf ";
constexpr std::string_view kScripts =
    " Han Hiragana Katakana Hangul Latin Cyrillic Greek Arabic Hebrew Thai Devanagari Bengali Tamil Lao "
    "Khmer "
    "Myanmar Tibetan Georgian Armenian Ethiopic Bopomofo ";

bool listed(std::string_view list, const std::string& name) {
    return list.find(" " + name + " ") != std::string_view::npos;
}

class Translator {
  public:
    explicit Translator(std::string_view pattern) : in_(pattern) {}

    std::string run() {
        while (!done()) {
            if (!quantifier()) atom();
        }
        enforce(groups_.empty(), "an open group: {}", in_);
        return std::move(out_);
    }

  private:
    bool done() const { return at_ >= in_.size(); }
    char peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
    bool take(std::string_view text) {
        if (in_.substr(at_, text.size()) != text) return false;
        at_ += text.size();
        return true;
    }
    [[noreturn]] void refuse(std::string_view what) const {
        throw BadInput(
            fmt::format("{} at character {} is not supported in a regular expression: {}", what, at_, in_));
    }

    void atom() {
        atom_ = out_.size();
        const char c = peek();
        if (c == '(') return open_group();
        if (c == ')') {
            ++at_;
            if (groups_.empty()) refuse("a closing bracket without an opening one");
            atom_ = groups_.back();
            groups_.pop_back();
            out_ += ')';
            return;
        }
        if (c == '[') return character_class();
        if (c == '\\') return escape(false);
        do out_ += in_[at_++];
        while ((static_cast<unsigned char>(peek()) & 0xC0) == 0x80);
    }

    void open_group() {
        groups_.push_back(out_.size());
        for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
            if (take(kind)) {
                out_ += kind;
                return;
            }
        }
        if (at_ == 0 && take("(?i)")) {
            groups_.pop_back();
            out_ += "(?i)";
            return;
        }
        if (peek(1) == '?' || peek(1) == '*') refuse("this kind of group");
        out_ += '(';
        ++at_;
    }

    // Behind an atom: ? * + {n} {n,} {,m} {n,m}, each maybe followed by ? (lazy); ?+ *+ ++ are possessive,
    // but Oniguruma's {n,m}+ repeats the repetition.
    bool quantifier() {
        const char c = peek();
        if (c == '?' || c == '*' || c == '+') {
            out_ += c;
            ++at_;
            if (peek() == '?' || peek() == '+') out_ += in_[at_++];
            return true;
        }
        if (c != '{') return false;
        std::size_t end = at_ + 1;
        while (end < in_.size() && (std::isdigit(static_cast<unsigned char>(in_[end])) || in_[end] == ','))
            ++end;
        const std::string_view inside = in_.substr(at_ + 1, end - at_ - 1);
        const bool counts = end < in_.size() && in_[end] == '}' && inside.size() < 12 &&
                            inside.find_first_of("0123456789") != std::string_view::npos &&
                            inside.find(',') == inside.rfind(',');
        if (!counts) {
            atom_ = out_.size();
            out_ += "\\{";
            ++at_;
            return true;
        }
        at_ = end + 1;
        out_ += fmt::format("{{{}{}}}", inside[0] == ',' ? "0" : "", inside);
        if (peek() == '?') {
            if (inside.find(',') == std::string_view::npos) refuse("{n}?");
            out_ += in_[at_++];
        } else if (peek() == '+') {
            ++at_;
            out_.insert(atom_, "(?:");
            out_ += ")+";
        }
        return true;
    }

    // in_[at_] is '['. Set operations and classes within classes are refused.
    void character_class() {
        out_ += '[';
        ++at_;
        if (take("^")) out_ += '^';
        bool first = true;
        while (first || peek() != ']') {
            if (done()) refuse("an open character class");
            if (take("[:space:]")) {
                out_ += R"(\s)";
            } else if (take("[:digit:]")) {
                out_ += R"(\d)";
            } else if (peek() == '[' || (peek() == '&' && peek(1) == '&')) {
                refuse("a class within a class");
            } else if (peek() == '\\') {
                escape(true);
            } else {
                if (first && peek() == ']') out_ += '\\';
                out_ += in_[at_++];
            }
            first = false;
        }
        out_ += ']';
        ++at_;
    }

    void property(bool negated) {
        const std::size_t end = in_.find('}', at_);
        if (end == std::string_view::npos) refuse("an open property");
        if (take("^")) negated = !negated;
        const std::string name(in_.substr(at_, end - at_));
        const char* p = negated ? "\\P" : "\\p";
        if (listed(kGeneralCategories, name)) {
            out_ += fmt::format("{}{{{}}}", p, name);
        } else if (listed(kScripts, name)) {
            out_ += fmt::format("{}{{sc:{}}}", p, name);
        } else {
            refuse("property " + name);
        }
        at_ = end + 1;
    }

    void hexadecimal(std::size_t fewest, std::size_t most) {
        std::size_t end = at_;
        while (end < in_.size() && end - at_ < most && std::isxdigit(static_cast<unsigned char>(in_[end])))
            ++end;
        if (end - at_ < fewest) refuse("this escape");
        out_ += fmt::format("\\x{{{}}}", in_.substr(at_, end - at_));
        at_ = end;
    }

    void escape(bool in_class) {
        ++at_;
        if (done()) refuse("a backslash at the end");
        const char c = in_[at_++];
        switch (c) {
            case 's':
            case 'S':
            case 'd':
            case 'D':
            case 'r':
            case 'n':
            case 't':
            case 'f':
            case 'a':
            case 'e':
                out_ += '\\';
                out_ += c;
                return;
            case 'v':
                out_ += R"(\x0B)";
                return;
            case 'w':
                out_ += in_class ? std::string(kWord) : fmt::format("[{}]", kWord);
                return;
            case 'W':
                if (in_class) refuse("\\W within a class");
                out_ += fmt::format("[^{}]", kWord);
                return;
            case 'h':
                out_ += in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]";
                return;
            case 'p':
            case 'P':
                if (!take("{")) refuse("this property");
                return property(c == 'P');
            case 'x':
                if (take("{")) {
                    hexadecimal(1, 8);
                    if (!take("}")) refuse("this escape");
                    return;
                }
                return hexadecimal(1, 2);
            case 'u':
                return hexadecimal(4, 4);
            case 'b':
                if (in_class) {
                    out_ += R"(\x08)";
                } else {
                    out_ += fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord);
                }
                return;
            case 'A':
            case 'z':
            case 'Z':
                if (in_class) refuse("an anchor within a class");
                out_ += '\\';
                out_ += c;
                return;
            default:
                break;
        }
        if (std::isalnum(static_cast<unsigned char>(c))) refuse(fmt::format("\\{}", c));
        if (static_cast<unsigned char>(c) < 0x80) out_ += '\\';
        out_ += c;
    }

    std::string_view in_;
    std::size_t at_ = 0;
    std::string out_;
    std::size_t atom_ = 0;  // where in out_ the last atom starts
    std::vector<std::size_t> groups_;
};

}  // namespace

std::string to_pcre2(std::string_view oniguruma_pattern) {
    return Translator(oniguruma_pattern).run();
}

}  // namespace tandem::tokenizer
