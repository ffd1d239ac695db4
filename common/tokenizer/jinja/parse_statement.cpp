#include <algorithm>
#include <utility>

#include "common/error.h"
#include "common/tokenizer/jinja/parser.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

using Kind = Token::Kind;

constexpr int kDeepestNesting = 60;
constexpr int kLongestChain = 150;

bool assigns(const Target& target, const std::string& name) {
    return (target.name && !target.attribute && target.name->text() == name) ||
           std::any_of(target.parts.begin(), target.parts.end(),
                       [&](const Target& one) { return assigns(one, name); });
}

}  // namespace

// --- limits, errors, and tokens one by one

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
    if (parser_.nesting_ >= kDeepestNesting) parser_.fail("nested too deep");
    ++parser_.nesting_;
}

void Parser::count_chain(int& links) const {
    if (++links > kLongestChain) fail("an expression of too many parts");
}

void Parser::fail(const std::string& message) const {
    const Token& token = peek();
    const std::string here = token.kind == Kind::end ? "the end" : "'" + shown(token.text) + "'";
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

// --- a template, and what lies between two tags

Body Parser::parse() {
    Body all = body({});
    if (peek().kind != Kind::end) fail("a statement that nothing opened");
    if (!unknown_.empty()) throw Error(unknown_[0].message);
    return all;
}

// Until {% one of `ends` …; its first two tokens are left.
Body Parser::body(const std::vector<std::string>& ends) {
    const Nesting nesting(*this);
    Body out;
    for (;;) {
        if (peek().kind == Kind::text) {
            auto text = std::make_unique<TextStatement>();
            text->text = take().text;
            out.add(std::move(text));
        } else if (peek().kind == Kind::variable_begin) {
            take();
            auto made = std::make_unique<Output>();
            made->values.push_back(tuple());
            if (peek().kind != Kind::variable_end) fail("'}}' expected");
            take();
            out.add(std::move(made));
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
    const bool opens = !keyword.starts_with("end");
    if (opens) take_sign(":");  // as Python writes it
    if (peek().kind != Kind::block_end) fail("'%}' expected");
    take();
}

// --- one statement of each kind

StatementPtr Parser::statement() {
    const std::string keyword = expect_name();
    if (keyword == "if") return if_statement();
    if (keyword == "for") return for_statement();
    if (keyword == "set") return set_statement();
    if (keyword == "macro") return macro_statement();
    if (keyword == "call") return call_statement();
    if (keyword == "filter") return filter_statement();
    if (keyword == "with") return with_statement();
    if (keyword == "block") return block_statement();
    if (keyword == "print") return output();
    if (keyword == "generation") return generation();
    if (keyword == "autoescape") return autoescape();
    if (keyword == "break" || keyword == "continue") return jump(keyword);
    if (keyword == "include" || keyword == "import" || keyword == "from" || keyword == "extends") {
        return refusal_statement(keyword);
    }
    fail("statement '" + shown(keyword) +
         "' is not supported; supported: if, for, set, macro, call, filter, with, block, print, break, "
         "continue, "
         "generation");
}

StatementPtr Parser::output() {
    auto made = std::make_unique<Output>();
    do {
        if (!made->values.empty() && peek().kind == Kind::block_end) fail("an expression expected");
        if (peek().kind == Kind::block_end) break;
        made->values.push_back(expression());
    } while (take_sign(","));
    if (peek().kind != Kind::block_end) fail("'%}' expected");
    take();
    return made;
}

StatementPtr Parser::jump(const std::string& keyword) {
    if (loops_ == 0) fail("'" + keyword + "' outside a loop");
    auto made = std::make_unique<Jump>();
    made->flow = keyword == "break" ? Flow::leave_loop : Flow::next_round;
    if (peek().kind != Kind::block_end) fail("'%}' expected");
    take();
    return made;
}

StatementPtr Parser::if_statement() {
    auto statement = std::make_unique<If>();
    const std::size_t before = unknown_.size();
    do {
        ExpressionPtr condition = tuple(false);
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
    forgive(before);
    return statement;
}

StatementPtr Parser::for_statement() {
    auto statement = std::make_unique<For>();
    statement->target = target("in", false);
    if (assigns(statement->target, "loop")) fail("a loop's variable cannot be 'loop'");
    set_.insert("loop");
    if (!take_word("in")) fail("'in' expected");
    statement->over = tuple(false);
    ++scope_;
    if (take_word("if")) statement->condition = expression();
    statement->recursive = take_word("recursive");
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
    --scope_;
    end_block("endfor");
    return statement;
}

StatementPtr Parser::set_statement() {
    Target to = target("=", true);
    if (take_sign("=")) {
        auto statement = std::make_unique<Set>();
        statement->target = std::move(to);
        statement->value = tuple();
        if (peek().kind != Kind::block_end) fail("'%}' expected");
        take();
        return statement;
    }
    auto statement = std::make_unique<SetBlock>();
    statement->target = std::move(to);
    if (is_sign("|")) {
        statement->filter = name(peek().line, kBlock);
        while (take_sign("|")) statement->filter = one_filter(std::move(statement->filter), "");
    }
    end_block("");
    ++scope_;
    statement->body = body({"endset"});
    --scope_;
    take();
    end_block("endset");
    return statement;
}

}  // namespace tandem::tokenizer::jinja
