#include "trainer/reward/number.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "trainer/reward/latex.h"
#include "trainer/reward/number_reader.h"

namespace tandem::trainer {
namespace {

constexpr std::string_view kMark = "####";
constexpr double kRootTolerance = 1e-9;  // of \frac{1}{\sqrt{2}} and \frac{\sqrt{2}}{2}
constexpr std::string_view kSpace = " \t\r\n\v\f";

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(kSpace);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Without $…$, $$…$$, **…** around it, with the sentence's point behind them or not.
std::string_view unwrapped(std::string_view text) {
    text = trimmed(text);
    for (bool again = true; again;) {
        again = false;
        std::string_view core = text;
        if (core.ends_with('.') || core.ends_with(',')) core.remove_suffix(1);
        for (const std::string_view wrapper : {"**", "$"}) {
            if (core.size() <= 2 * wrapper.size() || !core.starts_with(wrapper) || !core.ends_with(wrapper))
                continue;
            text = trimmed(core.substr(wrapper.size(), core.size() - 2 * wrapper.size()));
            again = true;
            break;
        }
    }
    return text;
}

std::optional<Number> read_whole(std::string_view plain) {
    return NumberReader(unwrapped(plain)).whole();
}

// The brace of the last \boxed or \fbox before `end`; npos when there is none, or none that a brace follows.
std::size_t last_frame(std::string_view plain, std::size_t& end) {
    std::size_t frame = std::string_view::npos, open = std::string_view::npos;
    for (const std::string_view name : {"\\boxed", "\\fbox"}) {
        const std::size_t at = plain.substr(0, end).rfind(name);
        if (at == std::string_view::npos || (frame != std::string_view::npos && at < frame)) continue;
        frame = at;
        open = plain.find_first_not_of(kSpace, at + name.size());
    }
    end = frame == std::string_view::npos ? 0 : frame;
    return open < plain.size() && plain[open] == '{' ? open : std::string_view::npos;
}

// What stands in the last \boxed{…} that is not empty.
std::optional<std::string_view> last_box(std::string_view plain) {
    for (std::size_t end = plain.size(); end > 0;) {
        const std::size_t open = last_frame(plain, end);
        if (open == std::string_view::npos) continue;
        const std::string_view content = braced(plain, open);
        if (content.data() == nullptr) return std::nullopt;  // cut off
        if (!trimmed(content).empty()) return content;
    }
    return std::nullopt;
}

}  // namespace

std::optional<Number> sole_number(std::string_view text) {
    if (const std::size_t mark = text.rfind(kMark); mark != std::string_view::npos)
        text = text.substr(mark + kMark.size());
    return read_whole(plain_latex(trimmed(text)));
}

std::optional<Number> final_number(std::string_view text) {
    if (const std::size_t mark = text.rfind(kMark); mark != std::string_view::npos) {
        const std::string after = plain_latex(text.substr(mark + kMark.size()));
        const std::string_view line = std::string_view(after).substr(0, after.find('\n'));
        for (const std::string_view whole : {std::string_view(after), line}) {
            if (const auto number = read_whole(whole)) return number;
        }
        const auto found = NumberReader(after).next();
        return found ? found->number : std::nullopt;
    }
    const std::string plain = plain_latex(text);
    if (const auto box = last_box(plain)) {
        if (const auto number = read_whole(*box)) return number;
        const std::size_t equals = box->rfind('=');
        return equals == std::string_view::npos ? std::nullopt : read_whole(box->substr(equals + 1));
    }
    if (const auto number = read_whole(plain)) return number;
    NumberReader reader(plain);
    std::optional<Number> last;
    while (const auto found = reader.next()) last = found->number;
    return last;
}

bool same_number(const Number& given, const Number& right, double tolerance) {
    if (given.exact && right.exact && *given.exact == *right.exact) return true;
    const bool root = !given.exact || !right.exact;
    const bool rounded = root || given.decimal || right.decimal;
    if (!rounded && tolerance <= kNumberTolerance) return false;
    if (!std::isfinite(given.value) || !std::isfinite(right.value)) return false;
    const double slack = root ? std::max(tolerance, kRootTolerance) : tolerance;
    return std::abs(given.value - right.value) <= slack * std::max(1.0, std::abs(right.value));
}

}  // namespace tandem::trainer
