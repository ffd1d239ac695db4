#include "trainer/reward/unit_words.h"

#include <algorithm>
#include <array>
#include <string>

#include "trainer/reward/latex.h"

namespace tandem::trainer {
namespace {

constexpr int kMostWords = 6;

// Known although short, and also directly behind the digits: 12cm.
constexpr auto kAbbreviations =
    std::to_array<std::string_view>({"cm", "mm",  "km",  "kg",  "mg",  "ml",  "lb", "lbs", "oz",  "ft", "mi",
                                     "hr", "hrs", "min", "sec", "mph", "kph", "pm", "am",  "kWh", "sq"});
constexpr auto kBetweenWords = std::to_array<std::string_view>({"of", "per", "an", "in", "the"});
constexpr auto kNoUnits = std::to_array<std::string_view>(
    {// join and bound
     "and", "or", "to", "nor", "through", "between", "than", "more", "less", "least", "most", "fewer", "not",
     "either", "both", "plus", "minus", "times", "over", "by", "from", "with", "without", "where", "when",
     "for", "else", "respectively", "remainder", "is", "are", "equals", "because", "modulo", "mod",
     // multiply
     "hundred", "hundreds", "thousand", "thousands", "million", "millions", "billion", "billions", "trillion",
     "trillions", "dozen", "dozens", "half", "halves", "third", "thirds", "quarter", "quarters", "fourth",
     "fourths", "fifth", "fifths", "tenth", "tenths", "hundredth", "hundredths", "thousandth", "thousandths",
     // name functions and numbers
     "pi", "sqrt", "root", "squared", "cubed", "infinity", "inf", "factorial", "choose", "log", "point"});

bool letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
template <std::size_t N>
bool among(const std::array<std::string_view, N>& words, std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}
std::string lower(std::string_view word) {
    std::string result(word);
    for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return result;
}

class UnitReader {
  public:
    explicit UnitReader(std::string_view text) : text_(text) {}

    std::size_t length() {
        std::size_t end = 0;
        while (one()) {
            power();
            end = at_;
        }
        return end;
    }

  private:
    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    std::string_view rest() const { return text_.substr(at_); }
    bool eat(std::string_view word) {
        if (!rest().starts_with(word)) return false;
        at_ += word.size();
        return true;
    }
    void skip_spaces() {
        while (peek() == ' ' || peek() == '\n' || peek() == '\t') ++at_;
    }

    // The next sign, group or word; the position is of no use when there is none.
    bool one() {
        const std::size_t start = at_;
        skip_spaces();
        const bool spaced = at_ > start;
        if (words_ == 0 && !percent_ && eat("%")) return percent_ = true;
        for (const std::string_view sign : {"€", "£", "¥", "¢", "$"}) {
            if (words_ == 0 && !currency_ && eat(sign)) return currency_ = true;
        }
        if (words_ == 0 && eat("°")) {
            if ((peek() == 'C' || peek() == 'F') && !(at_ + 1 < text_.size() && letter(text_[at_ + 1])))
                ++at_;
            return true;
        }
        if (eat("\\text")) return group();
        if (words_ > 0 && (eat("/") || eat("-"))) return word(false, true);
        return (spaced || start == 0) && word(!spaced, false);
    }

    bool group() {
        skip_spaces();
        if (peek() != '{') return false;
        const std::string_view words = braced(text_, at_);
        if (words.data() == nullptr) return false;
        const std::size_t end = at_ + words.size() + 2;
        UnitReader inside(words);
        inside.skip_spaces();
        while (!inside.rest().empty()) {
            if (!inside.word(false, true)) return false;
            inside.power();
            while (inside.eat(" ") || inside.eat("/") || inside.eat("-") || inside.eat(".") ||
                   inside.eat("%")) {
            }
        }
        words_ += inside.words_;
        at_ = end;
        return words_ <= kMostWords;
    }

    bool word(bool attached, bool in_group) {
        const std::size_t start = at_;
        while (letter(peek())) ++at_;
        const std::string_view found = text_.substr(start, at_ - start);
        if (found.empty() || ++words_ > kMostWords || among(kNoUnits, lower(found))) return false;
        if (in_group) return true;
        if (among(kAbbreviations, found)) {
            if (at_ + 1 < text_.size()) eat(".");  // sq. ft.
            return true;
        }
        if (attached) return false;
        return found.size() > 2 || among(kBetweenWords, found);
    }

    // "^2" of "cm^2".
    void power() {
        for (const std::string_view form : {"^2", "^3", "^{2}", "^{3}", "²", "³"}) {
            if (words_ > 0 && eat(form)) return;
        }
    }

    std::string_view text_;
    std::size_t at_ = 0;
    int words_ = 0;
    bool percent_ = false, currency_ = false;  // one of each
};

}  // namespace

std::size_t unit_length(std::string_view text) {
    return UnitReader(text).length();
}

}  // namespace tandem::trainer
