#include "common/http/framing.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <utility>

namespace tandem::http {
namespace {

using boost::beast::iequals;
using boost::beast::http::field;

constexpr std::string_view kBlank = " \t";

// What is quoted of a header in an answer.
std::string quoted(const std::string& word) {
    constexpr std::size_t kLongest = 64;
    return word.size() <= kLongest ? word : word.substr(0, kLongest) + "…";
}

}  // namespace

std::vector<std::string> words_of(const boost::beast::http::fields& fields, field name) {
    std::vector<std::string> words;
    const auto [begin, end] = fields.equal_range(name);
    for (auto line = begin; line != end; ++line) {
        std::string_view rest(line->value().data(), line->value().size());
        while (!rest.empty()) {
            const std::size_t comma = rest.find(',');
            std::string_view word = rest.substr(0, comma);
            rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
            word.remove_prefix(std::min(word.find_first_not_of(kBlank), word.size()));
            word = word.substr(0, word.find_last_not_of(kBlank) + 1);
            if (!word.empty()) words.emplace_back(word);
        }
    }
    return words;
}

std::optional<Refusal> refuse_framing(const boost::beast::http::fields& fields, unsigned minor,
                                      bool has_body) {
    if (fields.count(field::host) > 1) return Refusal{400, "the header Host is there more than once"};
    const std::vector<std::string> transfer = words_of(fields, field::transfer_encoding);
    for (const std::string& coding : transfer) {
        if (transfer.size() == 1 && iequals(coding, "chunked")) break;
        return Refusal{501, fmt::format("Transfer-Encoding {} is not supported: send the body as it is, with "
                                        "Content-Length or Transfer-Encoding: chunked",
                                        quoted(coding))};
    }
    for (const std::string& coding : words_of(fields, field::content_encoding)) {
        if (!has_body || iequals(coding, "identity")) continue;
        return Refusal{
            415, fmt::format("Content-Encoding {} is not supported: send the body as it is", quoted(coding))};
    }
    for (const std::string& expectation : words_of(fields, field::expect)) {
        if (minor == 0 || iequals(expectation, "100-continue")) continue;
        return Refusal{
            417, fmt::format("Expect {} is not supported: there is 100-continue alone", quoted(expectation))};
    }
    return {};
}

}  // namespace tandem::http
