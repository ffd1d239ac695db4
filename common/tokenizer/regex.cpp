#include "common/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

#include "common/error.h"
#include "common/tokenizer/newer_characters.h"

namespace tandem::tokenizer {
namespace {

constexpr std::uint32_t kMostSteps = 20'000'000;  // of one search, where PCRE2 counts them
constexpr std::size_t kJitStackBytes = std::size_t{8} << 20;

std::string message_of(int error) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof text);
    return reinterpret_cast<const char*>(text);
}

// One thread's state for matching, made at its first match.
struct Scratch {
    pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
    pcre2_match_context* context = pcre2_match_context_create(nullptr);
    pcre2_jit_stack* stack = pcre2_jit_stack_create(std::size_t{32} << 10, kJitStackBytes, nullptr);
    std::string shadow;

    Scratch() {
        if (data == nullptr || context == nullptr || stack == nullptr) throw std::bad_alloc();
        pcre2_jit_stack_assign(context, nullptr, stack);
        pcre2_set_match_limit(context, kMostSteps);
        pcre2_set_heap_limit(context, std::uint32_t{64} << 10);  // KiB
    }
    ~Scratch() {
        pcre2_match_data_free(data);
        pcre2_match_context_free(context);
        pcre2_jit_stack_free(stack);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
};

}  // namespace

struct Regex::Code {
    pcre2_code* compiled = nullptr;
    Code() = default;
    ~Code() { pcre2_code_free(compiled); }
    Code(const Code&) = delete;
    Code& operator=(const Code&) = delete;
};

Regex::Regex(const std::string& oniguruma_pattern) {
    const std::string pattern = to_pcre2(oniguruma_pattern);
    const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
        pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    int error = 0;
    std::size_t offset = 0;
    auto code = std::make_shared<Code>();
    code->compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                   &offset, context.get());
    enforce(code->compiled != nullptr, "not a regular expression, at character {}: {}: {}", offset,
            message_of(error), oniguruma_pattern);
    pcre2_jit_compile(code->compiled, PCRE2_JIT_COMPLETE);  // where there is no JIT, matching interprets
    code_ = std::move(code);
}

Regex Regex::literal(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        if (std::string_view("\\.+*?()|[]{}^$#&-~").find(c) != std::string_view::npos) escaped += '\\';
        escaped += c;
    }
    return Regex(escaped);
}

void Regex::split(std::string_view text, std::vector<Match>& pieces) const {
    thread_local Scratch scratch;
    pieces.clear();
    if (text.empty()) return;
    const std::string_view subject = with_stand_ins(text, scratch.shadow);
    const auto* start = reinterpret_cast<PCRE2_SPTR>(subject.data());
    std::size_t covered = 0, from = 0;
    bool any = false;
    while (from <= text.size()) {
        const int found = pcre2_match(code_->compiled, start, subject.size(), from, PCRE2_NO_UTF_CHECK,
                                      scratch.data, scratch.context);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0) throw Error("a regular expression of the tokenizer gave up: " + message_of(found));
        const std::size_t* span = pcre2_get_ovector_pointer(scratch.data);
        const std::size_t begin = span[0], end = span[1];
        if (begin == end && any && end == covered) {  // an empty match right behind a match does not count
            if (from >= text.size()) break;
            ++from;
            while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
            continue;
        }
        if (begin != covered) pieces.push_back({covered, begin, false});
        pieces.push_back({begin, end, true});
        covered = from = end;
        any = true;
    }
    if (covered != text.size()) pieces.push_back({covered, text.size(), false});
}

}  // namespace tandem::tokenizer
