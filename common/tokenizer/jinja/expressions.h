// Expressions of a template, each of which evaluates itself.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {

class Expression {
  public:
    explicit Expression(int line) : line_(line) {}
    virtual ~Expression() = default;
    Expression(const Expression&) = delete;
    Expression& operator=(const Expression&) = delete;
    // Throws Error for whatever Python or jinja2 would raise.
    Value evaluate(Runtime& runtime) const {
        const Runtime::Level level(runtime);
        runtime.step(line_);
        Value result = value(runtime);
        if (result.string() != nullptr) runtime.work(result.string()->size());  // it was copied at least once
        return result;
    }
    int line() const { return line_; }

  protected:
    virtual Value value(Runtime& runtime) const = 0;

  private:
    int line_;
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct ArgumentExpressions {
    std::vector<ExpressionPtr> positional;
    std::vector<std::pair<std::string, ExpressionPtr>> named;
    ExpressionPtr more_positional, more_named;  // *list, **dictionary; may be null
    Arguments evaluate(Runtime& runtime) const;
};

enum class Binary : std::uint8_t { add, subtract, multiply, divide, floor_divide, remainder, power, concat };
enum class Comparison : std::uint8_t { equal, unequal, less, at_most, greater, at_least, in, not_in };

ExpressionPtr literal(int line, Value value);
ExpressionPtr name(int line, std::string name);
ExpressionPtr list_of(int line, std::vector<ExpressionPtr> items);
ExpressionPtr tuple_of(int line, std::vector<ExpressionPtr> items);
ExpressionPtr dict_of(int line, std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries);
ExpressionPtr attribute_of(int line, ExpressionPtr object, std::string name);
ExpressionPtr subscript_of(int line, ExpressionPtr object, ExpressionPtr index);
// Absent bounds are null.
ExpressionPtr slice_of(int line, ExpressionPtr object, ExpressionPtr start, ExpressionPtr stop,
                       ExpressionPtr step);
// function(…), or object.name(…) where there is a name. A class of its own: {% call %} gives it one argument
// more.
class Call : public Expression {
  public:
    Call(int line, ExpressionPtr callee, std::string name, ArgumentExpressions given)
        : Expression(line), arguments(std::move(given)), callee_(std::move(callee)), name_(std::move(name)) {}
    ArgumentExpressions arguments;

  protected:
    Value value(Runtime& runtime) const override;

  private:
    ExpressionPtr callee_;
    std::string name_;
};
ExpressionPtr call(int line, ExpressionPtr callee, ArgumentExpressions arguments);
ExpressionPtr call_method(int line, ExpressionPtr object, std::string name, ArgumentExpressions arguments);
ExpressionPtr filter(int line, ExpressionPtr subject, std::string name, ArgumentExpressions arguments);
ExpressionPtr test(int line, ExpressionPtr subject, std::string name, ArgumentExpressions arguments,
                   bool negated);
ExpressionPtr negate(int line, ExpressionPtr operand);  // not x
ExpressionPtr minus(int line, ExpressionPtr operand);   // -x
ExpressionPtr plus(int line, ExpressionPtr operand);    // +x
// What Jinja refuses only where it is evaluated.
ExpressionPtr refusal(int line, std::string message);
ExpressionPtr binary(int line, Binary how, ExpressionPtr left, ExpressionPtr right);
// a < b <= c: each pair in turn.
ExpressionPtr compare(int line, ExpressionPtr first, std::vector<std::pair<Comparison, ExpressionPtr>> rest);
ExpressionPtr either(int line, ExpressionPtr left, ExpressionPtr right);  // or
ExpressionPtr both(int line, ExpressionPtr left, ExpressionPtr right);    // and
// `no` may be null: undefined.
ExpressionPtr conditional(int line, ExpressionPtr condition, ExpressionPtr yes, ExpressionPtr no);

Value combine(Runtime& runtime, Binary how, const Value& left, const Value& right);
Value negative(const Value& value);

}  // namespace tandem::tokenizer::jinja
