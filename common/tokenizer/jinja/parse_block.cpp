// Statements with a scope of their own: macros, blocks and what they are given.
#include <algorithm>
#include <utility>

#include "common/error.h"
#include "common/tokenizer/jinja/parser.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {

Target Parser::one_target(bool attributes) {
    Target one;
    if (take_sign("(")) {
        one = target(")", attributes);
        expect_sign(")");
        return one;
    }
    const std::string name = expect_name();
    for (const char* fixed : {"true", "false", "none", "True", "False", "None"}) {
        if (name == fixed) fail("nothing can be assigned to " + name);
    }
    one.name = Name(name);
    if (attributes && take_sign(".")) {
        read_.insert(name);
        one.attribute = Name(expect_name());
    } else {
        set_.insert(name);
    }
    return one;
}

Target Parser::target(const std::string& until, bool attributes) {
    const Nesting nesting(*this);
    Target all = one_target(attributes);
    if (!is_sign(",")) return all;
    Target several;
    several.several = true;
    several.parts.push_back(std::move(all));
    while (take_sign(",")) {
        if (until == ")" && is_sign(until)) break;
        several.parts.push_back(one_target(attributes));
    }
    return several;
}

Body Parser::scoped_body(const std::string& end) {
    const int loops = std::exchange(loops_, 0);
    ++scope_;
    Body out = body({end});
    --scope_;
    loops_ = loops;
    take();
    end_block(end);
    return out;
}

// Behind "(".
void Parser::parameters(MacroBody& macro) {
    std::set<std::string> names;
    while (!take_sign(")")) {
        if (!macro.parameters.empty()) expect_sign(",");
        std::string parameter = expect_name();
        if (!names.insert(parameter).second) fail("a parameter twice: " + shown(parameter));
        set_.insert(parameter);
        ExpressionPtr otherwise = take_sign("=") ? expression() : nullptr;
        const bool behind = !macro.parameters.empty() && macro.parameters.back().second;
        if (!otherwise && behind) fail("a parameter without default behind one with it");
        if (!otherwise && parameter == "caller") fail("the parameter caller needs a default");
        macro.parameters.emplace_back(Name(std::move(parameter)), std::move(otherwise));
    }
}

void Parser::macro_body(MacroBody& macro, const std::string& end) {
    end_block("");
    for (const char* own : {"caller", "kwargs", "varargs"}) set_.insert(own);
    macros_.push_back(&macro);
    macro.body = scoped_body(end);
    macros_.pop_back();
}

StatementPtr Parser::macro_statement() {
    auto statement = std::make_unique<Macro>();
    statement->macro.name = expect_name();
    set_.insert(statement->macro.name);
    expect_sign("(");
    parameters(statement->macro);
    macro_body(statement->macro, "endmacro");
    return statement;
}

StatementPtr Parser::call_statement() {
    auto statement = std::make_unique<CallBlock>();
    if (take_sign("(")) parameters(statement->caller);
    const int line = peek().line;
    statement->call = expression();
    auto* call = dynamic_cast<Call*>(statement->call.get());
    if (call == nullptr) fail("a call expected");
    call->arguments.named.emplace_back("caller", name(line, kCaller));
    macro_body(statement->caller, "endcall");
    return statement;
}

StatementPtr Parser::filter_statement() {
    auto statement = std::make_unique<FilterBlock>();
    statement->filter = name(peek().line, kBlock);
    do {
        statement->filter = one_filter(std::move(statement->filter), "");
    } while (take_sign("|"));
    end_block("");
    ++scope_;
    statement->body = body({"endfilter"});
    --scope_;
    take();
    end_block("endfilter");
    return statement;
}

StatementPtr Parser::with_statement() {
    auto statement = std::make_unique<With>();
    while (peek().kind != Token::Kind::block_end) {
        if (!statement->values.empty()) expect_sign(",");
        Target to = target("=", false);
        expect_sign("=");
        statement->values.emplace_back(std::move(to), expression());
    }
    end_block("");
    ++scope_;
    statement->body = body({"endwith"});
    --scope_;
    take();
    end_block("endwith");
    return statement;
}

StatementPtr Parser::block_statement() {
    auto statement = std::make_unique<Block>();
    const std::string name = expect_name();
    if (!blocks_.insert(name).second) fail("a block twice: " + shown(name));
    statement->scoped = take_word("scoped");
    if (is_word("required")) fail("a required block is not supported");
    end_block("");
    const int loops = std::exchange(loops_, 0);
    ++scope_;
    statement->body = body({"endblock"});
    --scope_;
    loops_ = loops;
    take();
    if (!take_word("endblock")) fail("'endblock' expected");
    take_word(name);
    end_block("");
    return statement;
}

// transformers makes it a macro that is called at once: its variables are its own.
StatementPtr Parser::generation() {
    auto statement = std::make_unique<With>();
    end_block("");
    statement->body = scoped_body("endgeneration");
    return statement;
}

// {% autoescape false %} is how things are; true is refused.
StatementPtr Parser::autoescape() {
    if (!take_word("false") && !take_word("False")) fail("autoescape is not supported");
    auto statement = std::make_unique<Plain>();
    end_block("");
    statement->body = body({"endautoescape"});
    take();
    end_block("endautoescape");
    return statement;
}

// Refused where it is run: a branch that is never taken hurts nobody.
StatementPtr Parser::refusal_statement(const std::string& keyword) {
    auto statement = std::make_unique<Refusal>();
    statement->keyword = keyword;
    if (peek().kind == Token::Kind::block_end) fail("the name of a template expected");
    while (peek().kind != Token::Kind::block_end && peek().kind != Token::Kind::end) take();
    end_block("");
    return statement;
}

}  // namespace tandem::tokenizer::jinja
