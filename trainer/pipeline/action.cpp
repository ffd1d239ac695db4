#include "trainer/pipeline/action.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "common/error.h"
#include "common/printable.h"

namespace tandem::pipeline {
namespace {

struct Name {
    ActionKind kind;
    const char* text;
    bool has_microbatch;
};

// In the order of ActionKind.
constexpr std::array<Name, 12> kNames = {{
    {ActionKind::forward, "F", true},
    {ActionKind::backward_input, "I", true},
    {ActionKind::backward_weight, "W", true},
    {ActionKind::full_backward, "B", true},
    {ActionKind::overlap_f_b, "OVERLAP_F_B", false},
    {ActionKind::unshard, "UNSHARD", false},
    {ActionKind::reshard, "RESHARD", false},
    {ActionKind::reduce_grad, "REDUCE_GRAD", false},
    {ActionKind::send_f, "SEND_F", true},
    {ActionKind::recv_f, "RECV_F", true},
    {ActionKind::send_b, "SEND_B", true},
    {ActionKind::recv_b, "RECV_B", true},
}};

constexpr const char* kForm =
    "write stage, action, micro-batch, as in 0F3, 2SEND_F0, 1UNSHARD or (0F7;7B3)OVERLAP_F_B";

std::string_view without_spaces(std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t");
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Takes the digits off the front of `rest`. One text for one number: no leading zeros.
int take_number(std::string_view& rest, const char* what, std::string_view whole) {
    constexpr int kMost = 1 << 20;
    const auto digits =
        static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), is_digit) - rest.begin());
    int number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + digits, number);
    enforce(digits > 0, "'{}' has no {}; {}", printable(whole), what, kForm);
    enforce(error == std::errc() && number <= kMost && (digits == 1 || rest[0] != '0'),
            "'{}': its {} must be a number from 0 to {} without leading zeros", printable(whole), what,
            kMost);
    rest.remove_prefix(digits);
    return number;
}

Action parse_single(std::string_view text) {
    std::string_view rest = text;
    Action action;
    action.stage = take_number(rest, "stage", text);
    const std::string_view word = rest.substr(
        0, static_cast<std::size_t>(std::find_if(rest.begin(), rest.end(), is_digit) - rest.begin()));
    const auto* name =
        std::find_if(kNames.begin(), kNames.end(), [&](const Name& n) { return word == n.text; });
    enforce(name != kNames.end() && name->kind != ActionKind::overlap_f_b,
            "'{}': '{}' is no action of one stage; known: F, I, W, B, UNSHARD, RESHARD, REDUCE_GRAD, SEND_F, "
            "RECV_F, "
            "SEND_B, RECV_B",
            printable(text), printable(word));
    action.kind = name->kind;
    rest.remove_prefix(word.size());
    if (name->has_microbatch) action.microbatch = take_number(rest, "micro-batch", text);
    enforce(rest.empty(), "'{}': '{}' after the action; {}", printable(text), printable(rest),
            name->has_microbatch ? kForm : "it is of a whole stage and has no micro-batch");
    return action;
}

Action parse_overlap(std::string_view text) {
    const std::size_t middle = text.find(';'), close = text.find(')');
    enforce(
        close != text.npos && middle < close && text.substr(close + 1) == to_string(ActionKind::overlap_f_b),
        "'{}' is no overlap: write two actions, as in (0F7;7B3)OVERLAP_F_B", printable(text));
    Action action{ActionKind::overlap_f_b};
    action.overlap.push_back(parse_single(without_spaces(text.substr(1, middle - 1))));
    action.overlap.push_back(parse_single(without_spaces(text.substr(middle + 1, close - middle - 1))));
    enforce(
        action.overlap[0].kind == ActionKind::forward && action.overlap[1].kind == ActionKind::full_backward,
        "'{}': an overlap is of an F and a B, in this order", printable(text));
    return action;
}

}  // namespace

std::span<const Action> parts_of(const Action& action) {
    if (action.kind == ActionKind::overlap_f_b) return action.overlap;
    return {&action, 1};
}

bool is_compute(ActionKind kind) {
    return kind <= ActionKind::overlap_f_b;
}

bool is_backward(ActionKind kind) {
    return kind == ActionKind::full_backward || kind == ActionKind::backward_input;
}

std::string to_string(ActionKind kind) {
    return kNames[static_cast<std::size_t>(kind)].text;
}

std::string to_string(const Action& action) {
    if (action.kind == ActionKind::overlap_f_b)
        return "(" + to_string(action.overlap[0]) + ";" + to_string(action.overlap[1]) + ")" +
               to_string(action.kind);
    const std::string microbatch = action.microbatch < 0 ? "" : std::to_string(action.microbatch);
    return std::to_string(action.stage) + to_string(action.kind) + microbatch;
}

Action parse_action(std::string_view text) {
    text = without_spaces(text);
    enforce(!text.empty(), "there is no action; {}", kForm);
    return text[0] == '(' ? parse_overlap(text) : parse_single(text);
}

}  // namespace tandem::pipeline
