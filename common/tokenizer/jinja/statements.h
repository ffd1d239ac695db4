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

struct Text : Statement {
    std::string text;
    Flow run(Runtime& runtime) const override;
};

struct Output : Statement {  // {{ value }}
    ExpressionPtr value;
    Flow run(Runtime& runtime) const override;
};

struct If : Statement {
    std::vector<std::pair<ExpressionPtr, Body>> branches;
    Body otherwise;
    Flow run(Runtime& runtime) const override;
};

struct For : Statement {
    std::vector<std::string> targets;
    ExpressionPtr over;
    ExpressionPtr condition;  // may be null
    Body body, otherwise;
    Flow run(Runtime& runtime) const override;

  private:
    void bind(Runtime& runtime, const Value& item) const;
};

struct Jump : Statement {  // break, continue
    Flow flow = Flow::next;
    Flow run(Runtime&) const override { return flow; }
};

struct Set : Statement {  // set a, b = value; set space.attribute = value; set a …endset
    std::vector<std::string> targets;
    std::string attribute;  // of the namespace targets[0]; empty: none
    ExpressionPtr value;    // null: the body's text
    Body body;
    Flow run(Runtime& runtime) const override;
};

struct Macro : Statement {
    std::string name;
    std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // defaults may be null
    Body body;
    Flow run(Runtime& runtime) const override;
    Value call(Runtime& runtime, const Arguments& arguments) const;
};

struct Group : Statement {  // {% generation %}: what is within, as it is
    Body body;
    Flow run(Runtime& runtime) const override { return body.run(runtime); }
};

}  // namespace tandem::tokenizer::jinja
