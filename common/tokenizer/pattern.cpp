#include "common/tokenizer/pattern.h"

#include "common/error.h"

namespace tandem::tokenizer {
namespace {

void split_literal(std::string_view text, std::string_view literal, std::vector<Match>& pieces) {
    pieces.clear();
    std::size_t covered = 0;
    for (std::size_t found = text.find(literal); found != std::string_view::npos;
         found = text.find(literal, covered)) {
        if (found != covered) pieces.push_back({covered, found, false});
        covered = found + literal.size();
        pieces.push_back({found, covered, true});
    }
    if (covered != text.size()) pieces.push_back({covered, text.size(), false});
}

}  // namespace

void Pattern::split(std::string_view text, std::vector<Match>& pieces) const {
    if (const auto* literal = std::get_if<std::string>(&how_)) return split_literal(text, *literal, pieces);
    std::get<Regex>(how_).split(text, pieces);
}

std::string Pattern::replace(std::string_view text, std::string_view content, const Growth& growth,
                             std::size_t made) const {
    std::vector<Match> pieces;
    split(text, pieces);
    std::string out;
    out.reserve(text.size());
    for (const Match& piece : pieces) {
        const std::string_view more =
            piece.match ? content : text.substr(piece.begin, piece.end - piece.begin);
        growth.check(made + out.size() + more.size());
        out += more;
    }
    return out;
}

Pattern read_pattern(const JsonField& field) {
    if (const auto text = field.find("String")) {
        if (text->text().empty()) text->fail("must not be empty");
        return Pattern(text->text());
    }
    const JsonField regex = field.at("Regex");
    try {
        return Pattern(Regex(regex.text()));
    } catch (const InvalidArgument& error) {
        regex.fail(error.what());
    }
}

}  // namespace tandem::tokenizer
