#include "common/tokenizer/bpe.h"

#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer {
namespace {

constexpr std::int64_t kMostIds = std::int64_t{1} << 24;

std::string token_or_empty(const JsonField& field, const std::string& key) {
    const auto found = field.find(key);
    return found ? found->token() : std::string();
}

}  // namespace

Bpe::Bpe(const JsonField& field) {
    const auto type = field.find("type");
    if (type && type->text() != "BPE")
        type->fail("\"" + type->text() + "\" is not supported; supported: BPE");
    if (const auto dropout = field.find("dropout")) {
        if (dropout->value() != 0) dropout->fail("is not supported: ids would depend on chance");
    }
    prefix_ = token_or_empty(field, "continuing_subword_prefix");
    suffix_ = token_or_empty(field, "end_of_word_suffix");
    fuse_unknown_ = field.flag("fuse_unk", false);
    ignore_merges_ = field.flag("ignore_merges", false);
    read_vocabulary(field.at("vocab"));
    read_merges(field.at("merges"));
    if (const auto unknown = field.find("unk_token")) {
        unknown_ = id_of(unknown->text());
        if (!unknown_) unknown->fail("\"" + unknown->text() + "\" is not in model.vocab");
    }
    if (field.flag("byte_fallback", false)) {
        for (int byte = 0; byte < 256; ++byte) {
            bytes_.push_back(id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1));
        }
    }
}

void Bpe::read_vocabulary(const JsonField& field) {
    if (!field.value().is_object()) field.fail("must be an object: token → id");
    vocabulary_.reserve(field.value().size());
    for (const auto& [token, id] : field.value().items()) {
        const bool whole = id.is_number_unsigned() && id.get<std::uint64_t>() < kMostIds;
        if (!whole) field.fail(fmt::format("\"{}\" must have an id from 0 to {}", token, kMostIds - 1));
        if (token.size() > kLongestToken) {
            field.fail(
                fmt::format("a token has {} bytes, at most {} are taken", token.size(), kLongestToken));
        }
        const auto number = id.get<std::int32_t>();
        const auto [where, fresh] = vocabulary_.emplace(token, number);
        if (tokens_.size() <= static_cast<std::size_t>(number)) {
            tokens_.resize(static_cast<std::size_t>(number) + 1, nullptr);
        }
        tokens_[static_cast<std::size_t>(number)] = &where->first;
    }
}

void Bpe::read_merges(const JsonField& field) {
    if (!field.value().is_array()) field.fail("must be a list of pairs");
    merges_.reserve(field.value().size());
    const auto fail = [&](std::size_t i, const std::string& message) {
        JsonField(field.value()[i], field.file(), fmt::format("{}[{}]", field.path(), i)).fail(message);
    };
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i < field.value().size(); ++i) {
        const nlohmann::json& merge = field.value()[i];
        std::string left, right;
        if (merge.is_string()) {
            const std::string& text = merge.get_ref<const std::string&>();
            if (text.starts_with("#version")) continue;
            const std::size_t space = text.find(' ');
            if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
                fail(i, "must be two tokens with one space between");
            }
            left = text.substr(0, space);
            right = text.substr(space + 1);
        } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
            left = merge[0].get<std::string>();
            right = merge[1].get<std::string>();
        } else {
            fail(i, "must be \"left right\" or [\"left\", \"right\"]");
        }
        const auto left_id = id_of(left), right_id = id_of(right);
        const std::string merged =
            left + (right.size() >= prefix_.size() ? right.substr(prefix_.size()) : right);
        const auto id = id_of(merged);
        for (const auto& [token, found] : {std::pair(left, left_id), {right, right_id}, {merged, id}}) {
            if (!found) fail(i, "token \"" + token + "\" is not in model.vocab");
        }
        merges_.insert(*left_id, *right_id, {rank++, *id});
    }
}

std::optional<std::int32_t> Bpe::id_of(std::string_view token) const {
    const auto found = vocabulary_.find(token);
    if (found == vocabulary_.end()) return std::nullopt;
    return found->second;
}

const std::string* Bpe::token_of(std::int32_t id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size()) return nullptr;
    return tokens_[static_cast<std::size_t>(id)];
}

// One symbol a character; what the vocabulary lacks becomes bytes, the unknown token, or nothing.
void Bpe::first_symbols(std::string_view piece, std::vector<std::int32_t>& symbols) const {
    std::string decorated;
    bool unknown_pending = false;
    const auto flush = [&] {
        if (unknown_pending) symbols.push_back(*unknown_);
        unknown_pending = false;
    };
    for (std::size_t at = 0; at < piece.size();) {
        const std::size_t begin = at;
        next_code_point(piece, at);
        std::string_view symbol = piece.substr(begin, at - begin);
        const bool first = begin == 0, last = at == piece.size();
        if ((!first && !prefix_.empty()) || (last && !suffix_.empty())) {
            decorated = (first ? "" : prefix_) + std::string(symbol) + (last ? suffix_ : "");
            symbol = decorated;
        }
        if (const auto id = id_of(symbol)) {
            flush();
            symbols.push_back(*id);
            continue;
        }
        const auto byte_id = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
        if (!bytes_.empty() &&
            std::all_of(symbol.begin(), symbol.end(), [&](char c) { return byte_id(c) >= 0; })) {
            for (const char c : symbol) symbols.push_back(byte_id(c));
            continue;
        }
        if (!unknown_) continue;
        if (!fuse_unknown_) flush();
        unknown_pending = true;
    }
    flush();
}

void Bpe::encode(std::string_view piece, std::vector<std::int32_t>& out) const {
    if (ignore_merges_) {
        if (const auto id = id_of(piece)) {
            out.push_back(*id);
            return;
        }
    }
    thread_local std::vector<std::int32_t> symbols;
    symbols.clear();
    first_symbols(piece, symbols);
    merges_.merge_all(symbols);
    out.insert(out.end(), symbols.begin(), symbols.end());
}

}  // namespace tandem::tokenizer
