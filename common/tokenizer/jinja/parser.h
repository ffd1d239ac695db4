// Tokens into statements and expressions, by jinja2's grammar.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/tokenizer/jinja/lexer.h"
#include "common/tokenizer/jinja/statements.h"

namespace tandem::tokenizer::jinja {

class Parser {
  public:
    // The clock outlives it: what it gives, all tokens share.
    Parser(std::vector<Token> tokens, const ThreadClock& clock) : tokens_(std::move(tokens)), clock_(clock) {}

    // The whole template. Throws Error with the line.
    Body parse();
    // Names that are read, that no statement of the template sets, and that are nowhere asked whether they
    // are defined, or given a default.
    std::set<std::string> names_needed() const;

  private:
    // parse_statement.cpp
    Body body(const std::vector<std::string>& ends);
    StatementPtr statement();
    StatementPtr output();
    StatementPtr if_statement();
    StatementPtr for_statement();
    StatementPtr set_statement();
    StatementPtr jump(const std::string& keyword);
    void end_block(const std::string& keyword);
    // parse_block.cpp: those with a scope of their own, and what they assign to
    StatementPtr macro_statement();
    StatementPtr call_statement();
    StatementPtr filter_statement();
    StatementPtr with_statement();
    StatementPtr block_statement();
    StatementPtr generation();
    StatementPtr autoescape();
    StatementPtr refusal_statement(const std::string& keyword);
    void parameters(MacroBody& macro);
    void macro_body(MacroBody& macro, const std::string& end);
    Target target(const std::string& until, bool attributes);  // a, b.c, (d, e)
    Target one_target(bool attributes);
    // The body until {% `end` %}, in a scope of its own.
    Body scoped_body(const std::string& end);

    // parse_expression.cpp
    ExpressionPtr expression();  // with a condition: a if b else c
    // a, b, c; the conditions are optional, and an empty one is a mistake but within parentheses.
    ExpressionPtr tuple(bool with_conditions = true, bool in_parentheses = false);
    ExpressionPtr disjunction();
    ExpressionPtr conjunction();
    ExpressionPtr negation();
    ExpressionPtr comparison();
    ExpressionPtr sum();
    ExpressionPtr concatenation();
    ExpressionPtr product();
    ExpressionPtr power();
    ExpressionPtr unary(bool with_filters = true);
    ExpressionPtr primary();
    ExpressionPtr postfix(ExpressionPtr expression);
    ExpressionPtr filters(ExpressionPtr expression, const std::string& bare_name);
    ExpressionPtr one_filter(ExpressionPtr subject, const std::string& bare_name);
    ExpressionPtr is_test(ExpressionPtr subject, const std::string& bare_name);
    ExpressionPtr list();
    ExpressionPtr dictionary();
    ExpressionPtr subscript(ExpressionPtr object);
    ExpressionPtr one_subscript(ExpressionPtr& start, ExpressionPtr& stop, ExpressionPtr& step, bool& sliced);
    ArgumentExpressions arguments();
    ExpressionPtr read_name(const Token& token);

    // Jinja refuses the name of an unknown filter or test only where it is evaluated, if it stands in a
    // branch of an `if`, and at once anywhere else.
    struct Unknown {
        std::string message;
        int scope = 0;
    };
    ExpressionPtr unknown(int line, const std::string& message);
    void forgive(std::size_t from);  // those of this scope since then

    const Token& peek(std::size_t ahead = 0) const {
        return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
    }
    Token take() {
        if (at_ % kClockEvery == kClockEvery - 1) clock_.look();
        return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back();
    }
    bool is_sign(std::string_view sign, std::size_t ahead = 0) const {
        return peek(ahead).kind == Token::Kind::sign && peek(ahead).text == sign;
    }
    bool is_word(std::string_view word, std::size_t ahead = 0) const {
        return peek(ahead).kind == Token::Kind::name && peek(ahead).text == word;
    }
    bool take_sign(std::string_view sign);
    bool take_word(std::string_view word);
    void expect_sign(std::string_view sign);
    std::string expect_name();
    [[noreturn]] void fail(const std::string& message) const;
    void count_chain(int& links) const;  // bounds how deep an expression grows to the left

    // One level of nesting of the template's text.
    class Nesting {
      public:
        explicit Nesting(Parser& parser);
        ~Nesting() { --parser_.nesting_; }
        Nesting(const Nesting&) = delete;
        Nesting& operator=(const Nesting&) = delete;

      private:
        Parser& parser_;
    };

    static constexpr std::size_t kClockEvery = 1024;  // tokens

    std::vector<Token> tokens_;
    const ThreadClock& clock_;
    std::size_t at_ = 0;
    int nesting_ = 0;
    int loops_ = 0;  // around what is being read
    int scope_ = 0;
    std::vector<Unknown> unknown_;
    std::vector<MacroBody*> macros_;  // around what is being read
    std::set<std::string> blocks_;
    std::set<std::string> read_, set_, guarded_;  // names
};

}  // namespace tandem::tokenizer::jinja
