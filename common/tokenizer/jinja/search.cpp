#include "common/tokenizer/jinja/search.h"

#include <algorithm>

#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {
namespace {

constexpr std::size_t kOfCall = 8;

// What one place takes: it may fit but for the last byte, and several bytes are compared at once.
std::size_t work_of_place(std::string_view wanted) {
    constexpr std::size_t kAtOnce = 8;
    return 1 + wanted.size() / kAtOnce;
}

// How many places are looked at before they are charged.
std::size_t places_at_once(std::string_view wanted) {
    constexpr std::size_t kWork = std::size_t{1} << 16;
    return std::max<std::size_t>(kWork / work_of_place(wanted), 1);
}

}  // namespace

std::size_t find_first(Runtime& runtime, std::string_view text, std::string_view wanted, std::size_t from) {
    runtime.work(kOfCall);
    if (from > text.size() || text.size() - from < wanted.size()) return std::string_view::npos;
    const std::size_t places = text.size() - wanted.size() + 1, most = places_at_once(wanted);
    while (from < places) {
        const std::size_t count = std::min(most, places - from);
        const std::size_t found = text.substr(from, count - 1 + wanted.size()).find(wanted);
        runtime.work(std::min(found, count) * work_of_place(wanted));
        if (found != std::string_view::npos) return from + found;
        from += count;
    }
    return std::string_view::npos;
}

std::size_t find_last(Runtime& runtime, std::string_view text, std::string_view wanted) {
    runtime.work(kOfCall);
    if (text.size() < wanted.size()) return std::string_view::npos;
    const std::size_t most = places_at_once(wanted);
    for (std::size_t places = text.size() - wanted.size() + 1; places > 0;) {
        const std::size_t count = std::min(most, places), from = places - count;
        const std::size_t found = text.substr(from, count - 1 + wanted.size()).rfind(wanted);
        const bool any = found != std::string_view::npos;
        runtime.work((any ? count - found : count) * work_of_place(wanted));
        if (any) return from + found;
        places = from;
    }
    return std::string_view::npos;
}

void split(Runtime& runtime, std::string_view text, std::optional<std::string_view> separator,
           std::int64_t most, const Part& part) {
    if (separator) {
        for (; most != 0; --most) {
            const std::size_t found = find_first(runtime, text, *separator);
            if (found == std::string_view::npos) break;
            part(text.substr(0, found));
            text.remove_prefix(found + separator->size());
        }
        return part(text);
    }
    for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
        if (most-- == 0) return part(text);
        std::size_t end = 0;
        for (std::size_t at = 0; at < text.size() && !is_space(next_code_point(text, at)); end = at) {
        }
        part(text.substr(0, end));
        text.remove_prefix(end);
    }
}

void split_right(Runtime& runtime, std::string_view text, std::optional<std::string_view> separator,
                 std::int64_t most, const Part& part) {
    if (separator) {
        for (; most != 0; --most) {
            const std::size_t found = find_last(runtime, text, *separator);
            if (found == std::string_view::npos) break;
            part(text.substr(found + separator->size()));
            text = text.substr(0, found);
        }
        return part(text);
    }
    for (text = strip_right(text); !text.empty(); text = strip_right(text)) {
        if (most-- == 0) return part(text);
        std::size_t begin = text.size();
        for (std::size_t at = begin; at > 0 && !is_space(previous_code_point(text, at)); begin = at) {
        }
        part(text.substr(begin));
        text = text.substr(0, begin);
    }
}

}  // namespace tandem::tokenizer::jinja
