#include "common/tokenizer/added_tokens.h"

#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer {
namespace {

std::size_t white_space_before(std::string_view text, std::size_t at) {
    while (at > 0) {
        std::size_t start = at;
        if (!is_white_space(previous_code_point(text, start))) break;
        at = start;
    }
    return at;
}

std::size_t white_space_behind(std::string_view text, std::size_t at) {
    while (at < text.size()) {
        std::size_t end = at;
        if (!is_white_space(next_code_point(text, end))) break;
        at = end;
    }
    return at;
}

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
    if (begin > 0 && is_word(previous_code_point(text, begin))) return true;
    return end < text.size() && is_word(next_code_point(text, end));
}

AddedToken read_token(const JsonField& field) {
    AddedToken token;
    token.id = static_cast<std::int32_t>(field.at("id").integer(0, (std::int64_t{1} << 24) - 1));
    token.content = field.at("content").token();
    token.single_word = field.flag("single_word", false);
    token.lstrip = field.flag("lstrip", false);
    token.rstrip = field.flag("rstrip", false);
    token.special = field.flag("special", false);
    token.normalized = field.flag("normalized", !token.special);
    token.normalized_content = token.content;
    return token;
}

}  // namespace

void TokenMatcher::add(std::string_view text, std::size_t value) {
    std::uint32_t node = 0;
    starts_[static_cast<unsigned char>(text.front())] = true;
    for (const char c : text) {
        auto& next = nodes_[node].next;
        const auto byte = static_cast<unsigned char>(c);
        auto where = std::lower_bound(next.begin(), next.end(), std::pair(byte, std::uint32_t{0}));
        if (where == next.end() || where->first != byte) {
            const auto fresh = static_cast<std::uint32_t>(nodes_.size());
            next.insert(where, {byte, fresh});
            nodes_.emplace_back();  // `next` is dangling from here on
            node = fresh;
        } else {
            node = where->second;
        }
    }
    if (!nodes_[node].value) nodes_[node].value = value;
}

std::optional<std::size_t> TokenMatcher::match(std::string_view text, std::size_t at,
                                               std::size_t& length) const {
    if (!starts_[static_cast<unsigned char>(text[at])]) return std::nullopt;
    std::optional<std::size_t> best;
    std::uint32_t node = 0;
    for (std::size_t i = at; i < text.size(); ++i) {
        const auto& next = nodes_[node].next;
        const auto byte = static_cast<unsigned char>(text[i]);
        const auto where = std::lower_bound(next.begin(), next.end(), std::pair(byte, std::uint32_t{0}));
        if (where == next.end() || where->first != byte) break;
        node = where->second;
        if (nodes_[node].value) {
            best = nodes_[node].value;
            length = i + 1 - at;
        }
    }
    return best;
}

AddedTokens::AddedTokens(const JsonField& list, const Bpe& model, const Normalizer* normalizer) {
    auto next_id = static_cast<std::int32_t>(model.size());
    for (const JsonField& field : list.items()) {
        AddedToken token = read_token(field);
        if (token.content.empty()) continue;
        const auto known =
            id_of(token.content).has_value() ? id_of(token.content) : model.id_of(token.content);
        const std::int32_t id = known ? *known : next_id++;
        if (id != token.id) {
            field.at("id").fail(
                fmt::format("is {}, but \"{}\" gets {}: {}", token.id, token.content, id,
                            known ? "the vocabulary has it there" : "ids must continue the vocabulary"));
        }
        if (token.normalized && normalizer != nullptr) {
            normalizer->apply(token.normalized_content, Growth("normalizer", token.content.size()));
        }
        if (token.normalized_content.empty()) field.fail("nothing is left of the token after normalisation");
        if (token.special) special_.insert(token.content);
        by_content_[token.content] = tokens_.size();
        by_id_[id] = tokens_.size();
        tokens_.push_back(std::move(token));
    }
    for (const auto& [id, index] : by_id_) {
        const AddedToken& token = tokens_[index];
        (token.normalized ? normalized_ : plain_).add(token.normalized_content, index);
    }
}

void AddedTokens::split(std::string_view text, bool normalized, std::vector<Segment>& segments) const {
    segments.clear();
    const TokenMatcher& matcher = normalized ? normalized_ : plain_;
    std::size_t covered = 0;
    for (std::size_t at = 0; !matcher.empty() && at < text.size();) {
        std::size_t length = 0;
        const auto found = matcher.match(text, at, length);
        if (!found) {
            ++at;
            continue;
        }
        const AddedToken& token = tokens_[*found];
        std::size_t begin = at, end = at + length;
        at = end;
        if (token.single_word && touches_word(text, begin, end)) continue;
        if (token.lstrip) begin = std::max(white_space_before(text, begin), covered);
        if (token.rstrip) end = white_space_behind(text, end);
        if (covered < begin) segments.push_back({covered, begin, -1});
        segments.push_back({begin, end, token.id});
        covered = end;
    }
    if (covered < text.size()) segments.push_back({covered, text.size(), -1});
}

std::optional<std::int32_t> AddedTokens::id_of(std::string_view content) const {
    const auto found = by_content_.find(content);
    if (found == by_content_.end()) return std::nullopt;
    return tokens_[found->second].id;
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

}  // namespace tandem::tokenizer
