#include "trainer/data/prompt_checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace tandem::trainer {
namespace {

constexpr std::size_t kKept = 3;
constexpr std::size_t kLongestQuote = 80;

}  // namespace

void Findings::add(std::string place, std::string what) {
    ++count_;
    if (kept_.size() < kKept) kept_.push_back({std::move(place), std::move(what)});
}

std::string Findings::places() const {
    std::string text;
    for (const Finding& one : kept_) text += (text.empty() ? "" : ", ") + one.place;
    const auto more = count_ - static_cast<std::int64_t>(kept_.size());
    return more > 0 ? fmt::format("{} and {} more", text, more) : text;
}

std::string Findings::lines(std::size_t start) const {
    std::string text;
    for (std::size_t i = start; i < kept_.size(); ++i)
        text += fmt::format("\n{}: {}", kept_[i].place, kept_[i].what);
    return text;
}

std::string in_quotes(std::string_view text) {
    std::string line(text.substr(0, kLongestQuote));
    if (text.size() > kLongestQuote) {
        while (!line.empty() && (line.back() & 0xC0) == 0x80) line.pop_back();  // no half characters
        if (!line.empty() && (line.back() & 0x80) != 0) line.pop_back();
        line += "…";
    }
    std::replace(line.begin(), line.end(), '\n', ' ');
    return "'" + line + "'";
}

std::vector<std::string> template_tokens(const TextCodec& codec) {
    std::vector<std::string> tokens;
    if (!codec.has_chat_template()) return tokens;
    Tokens ids;
    try {
        ids = codec.encode(codec.render({{"user", "1"}}, true), false);
    } catch (const std::exception&) {
        return tokens;  // a template of its own kind; the prompts will say so
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    for (const std::int32_t id : ids) {
        if (!codec.decode(std::span(&id, 1), true).empty()) continue;
        std::string text = codec.decode(std::span(&id, 1), false);
        if (!text.empty()) tokens.push_back(std::move(text));
    }
    return tokens;
}

std::string_view token_in(std::string_view text, const std::vector<std::string>& tokens) {
    for (const std::string& token : tokens) {
        if (text.find(token) != std::string_view::npos) return token;
    }
    return {};
}

}  // namespace tandem::trainer
