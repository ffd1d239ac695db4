#include "trainer/reward/surroundings.h"

#include <algorithm>
#include <optional>

namespace tandem::trainer {
namespace {

bool digit_char(char c) {
    return c >= '0' && c <= '9';
}
bool letter_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool single_letter(std::string_view text) {
    return !text.empty() && letter_char(text[0]) && (text.size() == 1 || !letter_char(text[1]));
}
std::string_view without_spaces(std::string_view text) {
    while (text.ends_with(' ')) text.remove_suffix(1);
    return text;
}
// Without a minus at the end; nothing where there is none.
std::optional<std::string_view> without_minus(std::string_view head) {
    for (const std::string_view minus : {"-", "−"}) {
        if (head.ends_with(minus)) return head.substr(0, head.size() - minus.size());
    }
    return std::nullopt;
}
std::string_view without_currency(std::string_view head) {
    for (const std::string_view currency : {"$", "€", "£", "¥"}) {
        if (head.ends_with(currency)) return head.substr(0, head.size() - currency.size());
    }
    return head;
}

// The number stands in the braces of an exponent, an index, or of a command that makes something else of it.
bool inside_script(std::string_view text, std::size_t start) {
    constexpr std::size_t kFar = 64;
    int depth = 0;
    for (std::size_t i = start; i-- > start - std::min(start, kFar);) {
        if (text[i] == '}') ++depth;
        if (text[i] != '{' || depth-- > 0) continue;
        const std::string_view head = text.substr(0, i);
        if (head.ends_with('}')) return true;  // \frac{3}{4 that was cut off
        for (const std::string_view name :
             {"^", "_", "\\overline", "\\binom", "\\pmod", "\\frac", "\\sqrt"}) {
            if (head.ends_with(name)) return true;
        }
        return false;
    }
    return false;
}

}  // namespace

bool starts_command(std::string_view text, std::string_view name) {
    return text.starts_with(name) && (text.size() == name.size() || !letter_char(text[name.size()]));
}

bool minus_before(std::string_view text, std::size_t start, bool latex) {
    std::string_view head = text.substr(0, start);
    if (latex) head = without_spaces(head);
    auto left = without_minus(head);
    if (!left) left = without_minus(without_currency(head));
    if (!left) return false;
    return left->empty() || !(digit_char(left->back()) || letter_char(left->back()) || left->back() == ')');
}

bool inside_formula(std::string_view text, std::size_t start, std::size_t latex_end) {
    if (inside_script(text, start)) return true;
    std::string_view head = text.substr(0, start);
    if (const auto left = without_minus(head)) head = *left;
    head = without_spaces(head);
    for (const std::string_view end : {"√", "\\cdot", "\\div", "\\pm", "\\pi", "π"}) {
        if (head.ends_with(end)) return true;
    }
    if (head.size() > 1 && head.ends_with('_') && letter_char(head[head.size() - 2])) return true;  // x_1
    const bool latex = text[start] == '\\';
    head = without_spaces(text.substr(0, start));
    if (latex && head.ends_with('/')) return true;
    if (latex && !head.empty() && head.size() == start) {  // x\sqrt{2}, )\frac{1}{2}
        const char last = head.back();
        if (last == ')' || last == '}' || last == '!') return true;
        if (letter_char(last) && (head.size() == 1 || !letter_char(head[head.size() - 2]))) return true;
    }
    for (const std::string_view sum : {"+", "-", "−"}) {
        if (!head.ends_with(sum)) continue;
        const std::string_view left = without_spaces(head.substr(0, head.size() - sum.size()));
        if (left.empty()) return false;
        if (left.back() == '}' || left.size() == latex_end) return true;
        return latex && (digit_char(left.back()) || left.back() == ')');
    }
    return false;
}

bool formula_goes_on(std::string_view rest, bool latex) {
    if (latex && (rest.starts_with('(') || single_letter(rest))) return true;
    std::string_view tail = rest;
    while (tail.starts_with(' ')) tail.remove_prefix(1);
    for (const std::string_view start : {"^", "π", "√"}) {
        if (tail.starts_with(start)) return true;
    }
    for (const std::string_view name :
         {"\\pi",    "\\cdot", "\\div",    "\\pm",    "\\infty", "\\alpha", "\\beta",
          "\\theta", "\\phi",  "\\lambda", "\\omega", "\\log",   "\\ln",    "\\sin",
          "\\cos",   "\\tan",  "\\exp",    "\\binom", "\\sqrt",  "\\frac"}) {
        if (starts_command(tail, name)) return true;
    }
    return false;
}

}  // namespace tandem::trainer
