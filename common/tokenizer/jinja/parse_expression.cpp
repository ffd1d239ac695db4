#include <charconv>
#include <cstdlib>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/parser.h"

namespace tandem::tokenizer::jinja {
namespace {

using Kind = Token::Kind;

}  // namespace

// a, b, c: a list where there is a comma.
ExpressionPtr Parser::tuple() {
    const int line = peek().line;
    ExpressionPtr first = expression();
    if (!is_sign(",")) return first;
    std::vector<ExpressionPtr> items;
    items.push_back(std::move(first));
    while (take_sign(",")) {
        if (peek().kind == Kind::block_end || peek().kind == Kind::variable_end) break;
        items.push_back(expression());
    }
    return list_of(line, std::move(items));
}

ExpressionPtr Parser::expression() {
    const Nesting nesting(*this);
    ExpressionPtr yes = disjunction();
    int links = 0;
    while (is_word("if")) {
        count_chain(links);
        const int line = take().line;
        ExpressionPtr condition = disjunction();
        ExpressionPtr no = take_word("else") ? expression() : nullptr;
        yes = conditional(line, std::move(condition), std::move(yes), std::move(no));
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
    } else if (take_sign("+")) {
        out = unary(false);
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
            read_.insert(token.text);
            return name(token.line, token.text);
        case Kind::string: {
            std::string text = token.text;
            while (peek().kind == Kind::string) text += take().text;
            return literal(token.line, std::move(text));
        }
        case Kind::integer: {
            std::int64_t number = 0;
            const char* end = token.text.data() + token.text.size();
            const auto [stop, error] = std::from_chars(token.text.data(), end, number);
            if (error != std::errc() || stop != end) fail("an integer that does not fit 64 bits");
            return literal(token.line, number);
        }
        case Kind::real:
            return literal(token.line, std::strtod(token.text.c_str(), nullptr));
        case Kind::sign:
            break;
        default:
            fail("an expression expected");
    }
    if (token.text == "(") {
        if (take_sign(")")) return list_of(token.line, {});
        ExpressionPtr first = expression();
        if (take_sign(")")) return first;
        std::vector<ExpressionPtr> items;
        items.push_back(std::move(first));
        while (!take_sign(")")) {
            expect_sign(",");
            if (!is_sign(")")) items.push_back(expression());
        }
        return list_of(token.line, std::move(items));
    }
    if (token.text == "[") {
        std::vector<ExpressionPtr> items;
        while (!take_sign("]")) {
            if (!items.empty()) expect_sign(",");
            if (!is_sign("]")) items.push_back(expression());
        }
        return list_of(token.line, std::move(items));
    }
    if (token.text == "{") return dictionary();
    fail("an expression expected behind '" + token.text + "'");
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
                const std::int64_t index = std::strtoll(take().text.c_str(), nullptr, 10);
                out = subscript_of(line, std::move(out), literal(line, index));
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

ExpressionPtr Parser::subscript(ExpressionPtr object) {
    const int line = peek().line;
    ExpressionPtr parts[3];
    int colons = 0;
    while (!is_sign("]")) {
        if (colons < 2 && take_sign(":")) {
            ++colons;
        } else if (parts[colons]) {
            fail("']' expected");
        } else {
            parts[colons] = expression();
        }
    }
    take();
    if (colons > 0) {
        return slice_of(line, std::move(object), std::move(parts[0]), std::move(parts[1]),
                        std::move(parts[2]));
    }
    if (!parts[0]) fail("an index expected");
    return subscript_of(line, std::move(object), std::move(parts[0]));
}

// Behind "(", up to and with ")".
ArgumentExpressions Parser::arguments() {
    const Nesting nesting(*this);
    ArgumentExpressions out;
    bool first = true;
    while (!take_sign(")")) {
        if (!first) expect_sign(",");
        first = false;
        if (is_sign(")")) continue;
        if (peek().kind == Kind::name && is_sign("=", 1)) {
            std::string key = take().text;
            take();
            out.named.emplace_back(std::move(key), expression());
        } else {
            if (!out.named.empty()) fail("a positional argument behind named ones");
            out.positional.push_back(expression());
        }
    }
    return out;
}

ExpressionPtr Parser::filters(ExpressionPtr out, const std::string& bare_name) {
    for (int links = 0;; count_chain(links)) {
        const int line = peek().line;
        if (take_sign("|")) {
            std::string name = expect_name();
            if (!is_filter(name)) fail("no filter named '" + name + "'");
            if (name == "default" || name == "d") guarded_.insert(bare_name);
            ArgumentExpressions given;
            if (take_sign("(")) given = arguments();
            out = filter(line, std::move(out), std::move(name), std::move(given));
        } else if (is_word("is")) {
            out = is_test(std::move(out), bare_name);
        } else if (take_sign("(")) {
            out = call(line, std::move(out), arguments());
        } else {
            return out;
        }
    }
}

ExpressionPtr Parser::is_test(ExpressionPtr subject, const std::string& bare_name) {
    const int line = take().line;
    const bool negated = take_word("not");
    std::string name = expect_name();
    if (!is_test_name(name)) fail("no test named '" + name + "'");
    if (name == "defined" || name == "undefined" || name == "none") guarded_.insert(bare_name);
    ArgumentExpressions given;
    const bool operand = peek().kind == Kind::name || peek().kind == Kind::string ||
                         peek().kind == Kind::integer || peek().kind == Kind::real || is_sign("[") ||
                         is_sign("{");
    if (take_sign("(")) {
        given = arguments();
    } else if (operand && !is_word("else") && !is_word("or") && !is_word("and") && !is_word("is") &&
               !is_word("if") && !is_word("not") && !is_word("in")) {
        const Nesting nesting(*this);
        given.positional.push_back(postfix(primary()));
    }
    return test(line, std::move(subject), std::move(name), std::move(given), negated);
}

}  // namespace tandem::tokenizer::jinja
