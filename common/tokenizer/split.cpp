#include "common/tokenizer/split.h"

#include <algorithm>
#include <utility>

#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer {
namespace {

// Matches and gaps, in order, into pieces. In `merged_next` the list is walked from its end.
void combine(const std::vector<Match>& matches, Behavior behavior, const Piece& whole,
             std::vector<Piece>& out) {
    const auto add = [&](const Match& m) {
        out.push_back({whole.begin + m.begin, whole.begin + m.end, false});
    };
    const std::size_t first = out.size();
    bool previous = false;
    switch (behavior) {
        case Behavior::isolated:
            for (const Match& m : matches) add(m);
            break;
        case Behavior::removed:
            for (const Match& m : matches) {
                if (!m.match) add(m);
            }
            break;
        case Behavior::contiguous:
            for (const Match& m : matches) {
                if (m.match == previous && out.size() > first) {
                    out.back().end = whole.begin + m.end;
                } else {
                    add(m);
                }
                previous = m.match;
            }
            break;
        case Behavior::merged_previous:
            for (const Match& m : matches) {
                if (m.match && !previous && out.size() > first) {
                    out.back().end = whole.begin + m.end;
                } else {
                    add(m);
                }
                previous = m.match;
            }
            break;
        case Behavior::merged_next:
            for (auto m = matches.rbegin(); m != matches.rend(); ++m) {
                if (m->match && !previous && out.size() > first) {
                    out.back().begin = whole.begin + m->begin;
                } else {
                    add(*m);
                }
                previous = m->match;
            }
            std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
            break;
    }
}

}  // namespace

void split_pieces(Pieces& pieces, const Matcher& matcher, Behavior behavior) {
    std::vector<Piece> out;
    std::vector<Match> matches;
    out.reserve(pieces.text.size() / 4 + 1);
    for (const Piece& piece : pieces.list) {
        matcher(pieces.view(piece), matches);
        const std::size_t first = out.size();
        combine(matches, behavior, piece, out);
        const auto fresh = out.begin() + static_cast<std::ptrdiff_t>(first);
        out.erase(std::remove_if(fresh, out.end(), [](const Piece& p) { return p.begin == p.end; }),
                  out.end());
        if (out.size() > first) out[first].at_start = piece.at_start && out[first].begin == piece.begin;
    }
    pieces.list = std::move(out);
}

void match_characters(std::string_view text, bool (*wanted)(char32_t), std::vector<Match>& matches) {
    matches.clear();
    std::size_t covered = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        if (!wanted(next_code_point(text, at))) continue;
        if (covered != begin) matches.push_back({covered, begin, false});
        matches.push_back({begin, at, true});
        covered = at;
    }
    if (covered != text.size()) matches.push_back({covered, text.size(), false});
}

Behavior read_behavior(const JsonField& field) {
    const std::string name = field.text();
    if (name == "Removed") return Behavior::removed;
    if (name == "Isolated") return Behavior::isolated;
    if (name == "MergedWithPrevious") return Behavior::merged_previous;
    if (name == "MergedWithNext") return Behavior::merged_next;
    if (name == "Contiguous") return Behavior::contiguous;
    field.fail("must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

}  // namespace tandem::tokenizer
