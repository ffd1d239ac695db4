// Statements of a template, each of which runs itself.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/tokenizer/jinja/expressions.h"

namespace tandem::tokenizer::jinja {

enum class Flow : std::uint8_t { next, leave_loop, next_round };

class Statement {
  public:
    virtual ~Statement() = default;
    virtual Flow run(Runtime& runtime) const = 0;
};
using StatementPtr = std::unique_ptr<Statement>;

class Body {
  public:
    void add(StatementPtr statement) { statements_.push_back(std::move(statement)); }
    Flow run(Runtime& runtime) const;

  private:
    std::vector<StatementPtr> statements_;
};

// What a value is assigned to: a name, namespace.attribute, or several targets, which may be nested.
struct Target {
    std::optional<Name> name, attribute;  // none of several
    std::vector<Target> parts;
    bool several = false;
    // Throws Error: another number of values, or no namespace.
    void assign(Runtime& runtime, Value value) const;
};

struct TextStatement : Statement {
    std::string text;
    Flow run(Runtime& runtime) const override;
};

struct Output : Statement {  // {{ value }}, {% print a, b %}
    std::vector<ExpressionPtr> values;
    Flow run(Runtime& runtime) const override;
};

struct If : Statement {
    std::vector<std::pair<ExpressionPtr, Body>> branches;
    Body otherwise;
    Flow run(Runtime& runtime) const override;
};

struct For : Statement {  // loop.cpp
    Target target;
    ExpressionPtr over;
    ExpressionPtr condition;  // may be null
    bool recursive = false;
    Body body, otherwise;
    Flow run(Runtime& runtime) const override;
    // One pass, within the frame around the statement. depth: 0 for the outermost of a recursion.
    void pass(Runtime& runtime, const FramePtr& around, const Value& items, Integer depth) const;
};

struct Jump : Statement {  // break, continue
    Flow flow = Flow::next;
    Flow run(Runtime&) const override { return flow; }
};

struct Set : Statement {  // set a, b = value; set space.attribute = value
    Target target;
    ExpressionPtr value;
    Flow run(Runtime& runtime) const override;
};

struct SetBlock : Statement {  // set a …endset; set a | filter …endset
    Target target;
    ExpressionPtr filter;  // of the name kBlock; may be null
    Body body;
    Flow run(Runtime& runtime) const override;
};

struct FilterBlock : Statement {
    ExpressionPtr filter;  // of the name kBlock
    Body body;
    Flow run(Runtime& runtime) const override;
};

// The names under which the text of a block and the macro of {% call %} stand; no template can write them.
inline constexpr const char* kBlock = "(block)";
inline constexpr const char* kCaller = "(caller)";

struct MacroBody {
    std::string name;
    std::vector<std::pair<Name, ExpressionPtr>> parameters;  // defaults may be null
    bool reads_caller = false, reads_kwargs = false, reads_varargs = false;
    Body body;
    // A value that runs it, within the present frame.
    Value made(Runtime& runtime) const;
};

struct Macro : Statement {
    MacroBody macro;
    Flow run(Runtime& runtime) const override;
};

struct CallBlock : Statement {
    MacroBody caller;
    ExpressionPtr call;  // with caller as an argument
    Flow run(Runtime& runtime) const override;
};

struct With : Statement {
    std::vector<std::pair<Target, ExpressionPtr>> values;  // all are evaluated outside
    Body body;
    Flow run(Runtime& runtime) const override;
};

struct Plain : Statement {  // what is within, as it is
    Body body;
    Flow run(Runtime& runtime) const override { return body.run(runtime); }
};

struct Block : Statement {  // sees the template's own variables, or all where it is scoped
    bool scoped = false;
    Body body;
    Flow run(Runtime& runtime) const override;
};

struct Refusal : Statement {  // include, import, from, extends: there is no other template
    std::string keyword;
    Flow run(Runtime& runtime) const override;
};

}  // namespace tandem::tokenizer::jinja
