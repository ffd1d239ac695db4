#include <algorithm>
#include <cstdlib>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/parser.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

using Kind = Token::Kind;

Value number_of(const Token& token) {
    try {
        if (const auto number =
                parse_integer(token.text, token.text.size() > 1 && token.text[0] == '0' ? 0 : 10)) {
            return *number;
        }
    } catch (const Error& error) {
        throw Error(fmt::format("line {}: {}: {}", token.line, shown(token.text), error.what()));
    }
    throw Error(fmt::format("line {}: no number: {}", token.line, shown(token.text)));
}

}  // namespace

ExpressionPtr Parser::tuple(bool with_conditions, bool in_parentheses) {
    const Nesting nesting(*this);
    const int line = peek().line;
    std::vector<ExpressionPtr> items;
    bool several = false;
    for (;;) {
        if (several) expect_sign(",");
        const Kind kind = peek().kind;
        if (kind == Kind::variable_end || kind == Kind::block_end || is_sign(")") ||
            (several && is_word("recursive"))) {
            break;
        }
        items.push_back(with_conditions ? expression() : disjunction());
        if (!is_sign(",")) break;
        several = true;
    }
    if (!several && !items.empty()) return std::move(items[0]);
    if (items.empty() && !in_parentheses) fail("an expression expected");
    return tuple_of(line, std::move(items));
}

ExpressionPtr Parser::expression() {
    const Nesting nesting(*this);
    const std::size_t before = unknown_.size();
    ExpressionPtr yes = disjunction();
    int links = 0;
    while (is_word("if")) {
        count_chain(links);
        const int line = take().line;
        ExpressionPtr condition = disjunction();
        ExpressionPtr no = take_word("else") ? expression() : nullptr;
        yes = conditional(line, std::move(condition), std::move(yes), std::move(no));
        forgive(before);
    }
    return yes;
}

ExpressionPtr Parser::disjunction() {
    ExpressionPtr left = conjunction();
    for (int links = 0; is_word("or"); count_chain(links)) {
        const int line = take().line;
        left = either(line, std::move(left), conjunction());
    }
    return left;
}

ExpressionPtr Parser::conjunction() {
    ExpressionPtr left = negation();
    for (int links = 0; is_word("and"); count_chain(links)) {
        const int line = take().line;
        left = both(line, std::move(left), negation());
    }
    return left;
}

ExpressionPtr Parser::negation() {
    if (!is_word("not")) return comparison();
    const Nesting nesting(*this);
    const int line = take().line;
    return negate(line, negation());
}

ExpressionPtr Parser::comparison() {
    ExpressionPtr first = sum();
    const int line = peek().line;
    std::vector<std::pair<Comparison, ExpressionPtr>> rest;
    const std::pair<const char*, Comparison> kSigns[] = {
        {"==", Comparison::equal},   {"!=", Comparison::unequal}, {"<", Comparison::less},
        {"<=", Comparison::at_most}, {">", Comparison::greater},  {">=", Comparison::at_least}};
    for (;;) {
        bool found = false;
        for (const auto& [sign, how] : kSigns) {
            if (!take_sign(sign)) continue;
            rest.emplace_back(how, sum());
            found = true;
            break;
        }
        if (found) continue;
        if (take_word("in")) {
            rest.emplace_back(Comparison::in, sum());
        } else if (is_word("not") && is_word("in", 1)) {
            take();
            take();
            rest.emplace_back(Comparison::not_in, sum());
        } else {
            break;
        }
    }
    return rest.empty() ? std::move(first) : compare(line, std::move(first), std::move(rest));
}

ExpressionPtr Parser::sum() {
    ExpressionPtr left = concatenation();
    for (int links = 0; is_sign("+") || is_sign("-"); count_chain(links)) {
        const Token sign = take();
        left = binary(sign.line, sign.text == "+" ? Binary::add : Binary::subtract, std::move(left),
                      concatenation());
    }
    return left;
}

ExpressionPtr Parser::concatenation() {
    ExpressionPtr left = product();
    for (int links = 0; is_sign("~"); count_chain(links)) {
        const int line = take().line;
        left = binary(line, Binary::concat, std::move(left), product());
    }
    return left;
}

ExpressionPtr Parser::product() {
    ExpressionPtr left = power();
    for (int links = 0; is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%"); count_chain(links)) {
        const Token sign = take();
        const Binary how = sign.text == "*"    ? Binary::multiply
                           : sign.text == "/"  ? Binary::divide
                           : sign.text == "//" ? Binary::floor_divide
                                               : Binary::remainder;
        left = binary(sign.line, how, std::move(left), power());
    }
    return left;
}

ExpressionPtr Parser::power() {
    ExpressionPtr left = unary();
    for (int links = 0; is_sign("**"); count_chain(links)) {
        const int line = take().line;
        left = binary(line, Binary::power, std::move(left), unary());
    }
    return left;
}

// Filters and tests bind more loosely than a sign: -1|abs is (-1)|abs.
ExpressionPtr Parser::unary(bool with_filters) {
    const Nesting nesting(*this);
    const std::size_t start = at_;
    ExpressionPtr out;
    if (is_sign("-")) {
        const int line = take().line;
        out = minus(line, unary(false));
    } else if (is_sign("+")) {
        const int line = take().line;
        out = plus(line, unary(false));
    } else {
        out = primary();
    }
    const bool bare = at_ == start + 1 && tokens_[start].kind == Kind::name;
    out = postfix(std::move(out));
    const bool still_bare = bare && at_ == start + 1;
    return with_filters ? filters(std::move(out), still_bare ? tokens_[start].text : "") : std::move(out);
}

ExpressionPtr Parser::primary() {
    const Token token = take();
    switch (token.kind) {
        case Kind::name:
            if (token.text == "true" || token.text == "True") return literal(token.line, true);
            if (token.text == "false" || token.text == "False") return literal(token.line, false);
            if (token.text == "none" || token.text == "None") return literal(token.line, Value::None{});
            return read_name(token);
        case Kind::string: {
            std::string text = token.text;
            while (peek().kind == Kind::string) text += take().text;
            return literal(token.line, std::move(text));
        }
        case Kind::integer:
            return literal(token.line, number_of(token));
        case Kind::real:
            return literal(token.line, std::strtod(token.text.c_str(), nullptr));
        case Kind::sign:
            break;
        default:
            fail("an expression expected");
    }
    if (token.text == "(") {
        ExpressionPtr within = tuple(true, true);
        expect_sign(")");
        return within;
    }
    if (token.text == "[") return list();
    if (token.text == "{") return dictionary();
    fail("an expression expected behind '" + token.text + "'");
}

ExpressionPtr Parser::read_name(const Token& token) {
    read_.insert(token.text);
    for (MacroBody* macro : macros_) {
        macro->reads_caller = macro->reads_caller || token.text == "caller";
        macro->reads_kwargs = macro->reads_kwargs || token.text == "kwargs";
        macro->reads_varargs = macro->reads_varargs || token.text == "varargs";
    }
    for (const char* one : {"self", "super", "lipsum"}) {
        if (token.text == one && set_.count(one) == 0)
            return refusal(token.line, token.text + " is not supported");
    }
    return name(token.line, token.text);
}

// Behind "[".
ExpressionPtr Parser::list() {
    const int line = peek().line;
    std::vector<ExpressionPtr> items;
    while (!take_sign("]")) {
        if (!items.empty()) expect_sign(",");
        if (!is_sign("]")) items.push_back(expression());
    }
    return list_of(line, std::move(items));
}

ExpressionPtr Parser::dictionary() {
    const int line = peek().line;
    std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
    while (!take_sign("}")) {
        if (!entries.empty()) expect_sign(",");
        if (is_sign("}")) continue;
        ExpressionPtr key = expression();
        expect_sign(":");
        entries.emplace_back(std::move(key), expression());
    }
    return dict_of(line, std::move(entries));
}

ExpressionPtr Parser::postfix(ExpressionPtr out) {
    for (int links = 0;; count_chain(links)) {
        const int line = peek().line;
        if (take_sign(".")) {
            if (peek().kind == Kind::integer) {
                out = subscript_of(line, std::move(out), literal(line, number_of(take())));
                continue;
            }
            std::string name = expect_name();
            if (take_sign("(")) {
                out = call_method(line, std::move(out), std::move(name), arguments());
            } else {
                out = attribute_of(line, std::move(out), std::move(name));
            }
        } else if (take_sign("[")) {
            out = subscript(std::move(out));
        } else if (take_sign("(")) {
            out = call(line, std::move(out), arguments());
        } else {
            return out;
        }
    }
}

// Behind "[": one index, a slice, or several of them.
ExpressionPtr Parser::subscript(ExpressionPtr object) {
    const Nesting nesting(*this);
    const int line = peek().line;
    std::vector<ExpressionPtr> items;
    ExpressionPtr start, stop, step;
    bool sliced = false;
    do {
        if (sliced) fail("several slices at once are not supported");
        if (!items.empty() && is_sign("]")) fail("an index expected");
        items.push_back(one_subscript(start, stop, step, sliced));
    } while (take_sign(","));
    expect_sign("]");
    if (sliced && items.size() > 1) fail("several slices at once are not supported");
    if (sliced) return slice_of(line, std::move(object), std::move(start), std::move(stop), std::move(step));
    ExpressionPtr index = items.size() == 1 ? std::move(items[0]) : tuple_of(line, std::move(items));
    return subscript_of(line, std::move(object), std::move(index));
}

// An index, or null and the bounds of a slice.
ExpressionPtr Parser::one_subscript(ExpressionPtr& start, ExpressionPtr& stop, ExpressionPtr& step,
                                    bool& sliced) {
    if (!is_sign(":")) {
        ExpressionPtr index = expression();
        if (!is_sign(":")) return index;
        start = std::move(index);
    }
    sliced = true;
    expect_sign(":");
    const auto ends = [this] { return is_sign("]") || is_sign(",") || is_sign(":"); };
    if (!ends()) stop = expression();
    if (take_sign(":") && !ends()) step = expression();
    return nullptr;
}

// Behind "(", up to and with ")".
ArgumentExpressions Parser::arguments() {
    const Nesting nesting(*this);
    ArgumentExpressions out;
    std::set<std::string> names;
    bool first = true;
    while (!take_sign(")")) {
        if (!first) expect_sign(",");
        const bool again = !first;
        first = false;
        if (again && is_sign(")")) continue;
        if (take_sign("*")) {
            if (out.more_positional || out.more_named) fail("a second * or one behind **");
            out.more_positional = expression();
        } else if (take_sign("**")) {
            if (out.more_named) fail("a second **");
            out.more_named = expression();
        } else if (peek().kind == Kind::name && is_sign("=", 1)) {
            if (out.more_named) fail("an argument behind **");
            std::string key = take().text;
            take();
            if (!names.insert(key).second) fail("an argument twice: " + shown(key));
            out.named.emplace_back(std::move(key), expression());
        } else {
            if (!out.named.empty() || out.more_positional || out.more_named) {
                fail("a positional argument behind named ones");
            }
            out.positional.push_back(expression());
        }
    }
    return out;
}

ExpressionPtr Parser::unknown(int line, const std::string& message) {
    unknown_.push_back({fmt::format("line {}: {}", line, message), scope_});
    return refusal(line, message);
}

void Parser::forgive(std::size_t from) {
    const auto begin = unknown_.begin() + static_cast<std::ptrdiff_t>(from);
    unknown_.erase(
        std::remove_if(begin, unknown_.end(), [this](const Unknown& one) { return one.scope == scope_; }),
        unknown_.end());
}

ExpressionPtr Parser::filters(ExpressionPtr out, const std::string& bare_name) {
    for (int links = 0;; count_chain(links)) {
        const int line = peek().line;
        if (take_sign("|")) {
            out = one_filter(std::move(out), bare_name);
        } else if (is_word("is")) {
            out = is_test(std::move(out), bare_name);
        } else if (take_sign("(")) {
            out = call(line, std::move(out), arguments());
        } else {
            return out;
        }
    }
}

// Behind "|".
ExpressionPtr Parser::one_filter(ExpressionPtr subject, const std::string& bare_name) {
    const int line = peek().line;
    std::string name = expect_name();
    while (take_sign(".")) name += "." + expect_name();
    if (name == "default" || name == "d") guarded_.insert(bare_name);
    ArgumentExpressions given;
    if (take_sign("(")) given = arguments();
    if (!is_filter(name)) return unknown(line, "no filter named '" + shown(name) + "'");
    return filter(line, std::move(subject), std::move(name), std::move(given));
}

ExpressionPtr Parser::is_test(ExpressionPtr subject, const std::string& bare_name) {
    const int line = take().line;
    const bool negated = take_word("not");
    std::string name = expect_name();
    while (take_sign(".")) name += "." + expect_name();
    if (name == "defined" || name == "undefined" || name == "none") guarded_.insert(bare_name);
    ArgumentExpressions given;
    const bool operand = peek().kind == Kind::name || peek().kind == Kind::string ||
                         peek().kind == Kind::integer || peek().kind == Kind::real || is_sign("[") ||
                         is_sign("{");
    if (take_sign("(")) {
        given = arguments();
    } else if (operand && !is_word("else") && !is_word("or") && !is_word("and")) {
        if (is_word("is")) fail("tests cannot be chained with 'is'");
        const Nesting nesting(*this);
        given.positional.push_back(postfix(primary()));
    }
    if (!is_test_name(name)) return unknown(line, "no test named '" + shown(name) + "'");
    return test(line, std::move(subject), std::move(name), std::move(given), negated);
}

}  // namespace tandem::tokenizer::jinja
