#include <algorithm>
#include <utility>

#include "common/error.h"
#include "common/tokenizer/jinja/parser.h"

namespace tandem::tokenizer::jinja {
namespace {

using Kind = Token::Kind;

constexpr int kDeepestNesting = 60;
constexpr int kLongestChain = 150;

}  // namespace

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
    if (parser_.nesting_ >= kDeepestNesting) parser_.fail("nested too deep");
    ++parser_.nesting_;
}

void Parser::count_chain(int& links) const {
    if (++links > kLongestChain) fail("an expression of too many parts");
}

void Parser::fail(const std::string& message) const {
    const Token& token = peek();
    const std::string here = token.kind == Kind::end ? "the end" : "'" + token.text + "'";
    throw Error(
        fmt::format("line {}: {} at {}", token.line, message, token.text.empty() ? "a tag's border" : here));
}

bool Parser::take_sign(std::string_view sign) {
    if (!is_sign(sign)) return false;
    take();
    return true;
}

bool Parser::take_word(std::string_view word) {
    if (!is_word(word)) return false;
    take();
    return true;
}

void Parser::expect_sign(std::string_view sign) {
    if (!take_sign(sign)) fail(fmt::format("'{}' expected", sign));
}

std::string Parser::expect_name() {
    if (peek().kind != Kind::name) fail("a name expected");
    return take().text;
}

std::set<std::string> Parser::names_needed() const {
    std::set<std::string> needed;
    for (const std::string& name : read_) {
        if (set_.count(name) == 0 && guarded_.count(name) == 0) needed.insert(name);
    }
    return needed;
}

Body Parser::parse() {
    Body all = body({});
    if (peek().kind != Kind::end) fail("a statement that nothing opened");
    return all;
}

// Until {% one of `ends` …; its first two tokens are left.
Body Parser::body(const std::vector<std::string>& ends) {
    const Nesting nesting(*this);
    Body out;
    for (;;) {
        if (peek().kind == Kind::text) {
            auto text = std::make_unique<Text>();
            text->text = take().text;
            out.add(std::move(text));
        } else if (peek().kind == Kind::variable_begin) {
            take();
            auto output = std::make_unique<Output>();
            output->value = tuple();
            if (peek().kind != Kind::variable_end) fail("'}}' expected");
            take();
            out.add(std::move(output));
        } else if (peek().kind == Kind::block_begin) {
            const bool ended =
                peek(1).kind == Kind::name && std::find(ends.begin(), ends.end(), peek(1).text) != ends.end();
            if (ended) return out;
            take();
            out.add(statement());
        } else {
            if (!ends.empty()) fail(fmt::format("'{}' expected", ends.back()));
            return out;
        }
    }
}

void Parser::end_block(const std::string& keyword) {
    if (!keyword.empty() && !take_word(keyword)) fail("'" + keyword + "' expected");
    if (peek().kind != Kind::block_end) fail("'%}' expected");
    take();
}

StatementPtr Parser::statement() {
    const std::string keyword = expect_name();
    if (keyword == "if") return if_statement();
    if (keyword == "for") return for_statement();
    if (keyword == "set") return set_statement();
    if (keyword == "macro") return macro_statement();
    if (keyword == "generation") return generation();
    if (keyword == "break" || keyword == "continue") {
        if (loops_ == 0) fail("'" + keyword + "' outside a loop");
        auto jump = std::make_unique<Jump>();
        jump->flow = keyword == "break" ? Flow::leave_loop : Flow::next_round;
        end_block("");
        return jump;
    }
    fail("statement '" + keyword +
         "' is not supported; supported: if, for, set, macro, break, continue, generation");
}

StatementPtr Parser::if_statement() {
    auto statement = std::make_unique<If>();
    do {
        ExpressionPtr condition = tuple();
        end_block("");
        Body inside = body({"elif", "else", "endif"});
        statement->branches.emplace_back(std::move(condition), std::move(inside));
        take();  // {%
    } while (take_word("elif"));
    if (take_word("else")) {
        end_block("");
        statement->otherwise = body({"endif"});
        take();
    }
    end_block("endif");
    return statement;
}

std::vector<std::string> Parser::targets(const std::string& until) {
    std::vector<std::string> names;
    const bool bracket = take_sign("(");
    do {
        if (!names.empty() && (is_word(until) || is_sign(until) || is_sign(")"))) break;
        names.push_back(expect_name());
        set_.insert(names.back());
    } while (take_sign(","));
    if (bracket) expect_sign(")");
    return names;
}

StatementPtr Parser::for_statement() {
    auto statement = std::make_unique<For>();
    statement->targets = targets("in");
    set_.insert("loop");
    if (!take_word("in")) fail("'in' expected");
    statement->over = disjunction();
    if (take_sign(",")) fail("a tuple to loop over is not supported");
    if (take_word("if")) statement->condition = expression();
    if (is_word("recursive")) fail("a recursive loop is not supported");
    end_block("");
    ++loops_;
    statement->body = body({"else", "endfor"});
    --loops_;
    take();
    if (take_word("else")) {
        end_block("");
        statement->otherwise = body({"endfor"});
        take();
    }
    end_block("endfor");
    return statement;
}

StatementPtr Parser::set_statement() {
    auto statement = std::make_unique<Set>();
    if (is_sign(".", 1)) {
        statement->targets = {expect_name()};
        take();
        statement->attribute = expect_name();
    } else {
        statement->targets = targets("=");
    }
    if (take_sign("=")) {
        statement->value = tuple();
        end_block("");
        return statement;
    }
    if (statement->targets.size() > 1) fail("'=' expected");
    end_block("");
    statement->body = body({"endset"});
    take();
    end_block("endset");
    return statement;
}

StatementPtr Parser::macro_statement() {
    auto statement = std::make_unique<Macro>();
    statement->name = expect_name();
    set_.insert(statement->name);
    expect_sign("(");
    while (!take_sign(")")) {
        if (!statement->parameters.empty()) expect_sign(",");
        std::string parameter = expect_name();
        set_.insert(parameter);
        ExpressionPtr otherwise = take_sign("=") ? expression() : nullptr;
        statement->parameters.emplace_back(std::move(parameter), std::move(otherwise));
    }
    end_block("");
    const int loops = std::exchange(loops_, 0);
    statement->body = body({"endmacro"});
    loops_ = loops;
    take();
    if (take_word("endmacro") && peek().kind == Kind::name) take();  // {% endmacro name %}
    end_block("");
    return statement;
}

StatementPtr Parser::generation() {
    auto statement = std::make_unique<Group>();
    end_block("");
    statement->body = body({"endgeneration"});
    take();
    end_block("endgeneration");
    return statement;
}

}  // namespace tandem::tokenizer::jinja
