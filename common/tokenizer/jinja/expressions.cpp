#include "common/tokenizer/jinja/expressions.h"

#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"

namespace tandem::tokenizer::jinja {
namespace {

// An expression given by what it does.
template <typename Evaluate>
class Node : public Expression {
  public:
    Node(int line, Evaluate evaluate) : Expression(line), evaluate_(std::move(evaluate)) {}

  protected:
    Value value(Runtime& runtime) const override { return evaluate_(runtime); }

  private:
    Evaluate evaluate_;
};

template <typename Evaluate>
ExpressionPtr make(int line, Evaluate evaluate) {
    return std::make_unique<Node<Evaluate>>(line, std::move(evaluate));
}

void put(Entries& entries, const std::string& key, Value value) {
    for (auto& [name, held] : entries) {
        if (name == key) {
            held = std::move(value);
            return;
        }
    }
    entries.emplace_back(key, std::move(value));
}

bool holds(Runtime& runtime, Comparison how, const Value& left, const Value& right) {
    switch (how) {
        case Comparison::equal:
            return equal(runtime, left, right);
        case Comparison::unequal:
            return !equal(runtime, left, right);
        case Comparison::in:
            return contains(runtime, right, left);
        case Comparison::not_in:
            return !contains(runtime, right, left);
        default:
            break;
    }
    const auto ordered = order(runtime, left, right);
    if (!ordered) {
        throw Error(fmt::format("'{}' and '{}' have no order", left.type_name(), right.type_name()));
    }
    switch (how) {
        case Comparison::less:
            return *ordered < 0;
        case Comparison::at_most:
            return *ordered <= 0;
        case Comparison::greater:
            return *ordered > 0;
        default:
            return *ordered >= 0;
    }
}

}  // namespace

Arguments ArgumentExpressions::evaluate(Runtime& runtime) const {
    Arguments out;
    for (const ExpressionPtr& one : positional) out.positional.push_back(one->evaluate(runtime));
    for (const auto& [key, one] : named) out.named.emplace_back(key, one->evaluate(runtime));
    return out;
}

ExpressionPtr literal(int line, Value value) {
    return make(line, [value = std::move(value)](Runtime&) { return value; });
}

ExpressionPtr name(int line, std::string name) {
    return make(line, [name = std::move(name)](Runtime& runtime) { return runtime.find(name); });
}

ExpressionPtr list_of(int line, std::vector<ExpressionPtr> items) {
    return make(line, [items = std::move(items)](Runtime& runtime) {
        runtime.spend(items.size() * sizeof(Value));
        List out;
        for (const ExpressionPtr& item : items) out.push_back(item->evaluate(runtime));
        return Value::list(std::move(out));
    });
}

ExpressionPtr dict_of(int line, std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries) {
    return make(line, [entries = std::move(entries)](Runtime& runtime) {
        runtime.spend(entries.size() * sizeof(Value));
        Entries out;
        for (const auto& [key, item] : entries) {
            const Value name = key->evaluate(runtime);
            if (name.string() == nullptr) throw Error("only strings can be keys here");
            put(out, *name.string(), item->evaluate(runtime));
        }
        return Value::dict(std::move(out));
    });
}

ExpressionPtr attribute_of(int line, ExpressionPtr object, std::string name) {
    return make(line, [object = std::move(object), name = std::move(name)](Runtime& runtime) {
        return attribute(runtime, object->evaluate(runtime), name);
    });
}

ExpressionPtr subscript_of(int line, ExpressionPtr object, ExpressionPtr index) {
    return make(line, [object = std::move(object), index = std::move(index)](Runtime& runtime) {
        const Value held = object->evaluate(runtime);
        return subscript(runtime, held, index->evaluate(runtime));
    });
}

ExpressionPtr slice_of(int line, ExpressionPtr object, ExpressionPtr start, ExpressionPtr stop,
                       ExpressionPtr step) {
    return make(line, [object = std::move(object), start = std::move(start), stop = std::move(stop),
                       step = std::move(step)](Runtime& runtime) {
        const auto bound = [&](const ExpressionPtr& one) {
            return one ? one->evaluate(runtime) : Value(Value::None{});
        };
        const Value held = object->evaluate(runtime);
        const Value from = bound(start), to = bound(stop);
        return slice(runtime, held, from, to, bound(step));
    });
}

ExpressionPtr call(int line, ExpressionPtr callee, ArgumentExpressions arguments) {
    return make(line, [callee = std::move(callee), arguments = std::move(arguments)](Runtime& runtime) {
        const Value function = callee->evaluate(runtime);
        if (function.is_undefined()) throw Error(function.get<Value::Undefined>()->what);
        if (function.function() == nullptr) {
            throw Error(fmt::format("'{}' object is not callable", function.type_name()));
        }
        return (*function.function())(arguments.evaluate(runtime));
    });
}

ExpressionPtr call_method(int line, ExpressionPtr object, std::string name, ArgumentExpressions arguments) {
    return make(line, [object = std::move(object), name = std::move(name),
                       arguments = std::move(arguments)](Runtime& runtime) {
        const Value held = object->evaluate(runtime);
        if (has_method(held, name)) return call_method(runtime, held, name, arguments.evaluate(runtime));
        const Value function = attribute(runtime, held, name);
        if (function.function() == nullptr) {
            throw Error(fmt::format("'{}' object has no method '{}'", held.type_name(), name));
        }
        return (*function.function())(arguments.evaluate(runtime));
    });
}

ExpressionPtr filter(int line, ExpressionPtr subject, std::string name, ArgumentExpressions arguments) {
    return make(line, [subject = std::move(subject), name = std::move(name),
                       arguments = std::move(arguments)](Runtime& runtime) {
        const Value held = subject->evaluate(runtime);
        return apply_filter(runtime, name, held, arguments.evaluate(runtime));
    });
}

ExpressionPtr test(int line, ExpressionPtr subject, std::string name, ArgumentExpressions arguments,
                   bool negated) {
    return make(line,
                [subject = std::move(subject), name = std::move(name), arguments = std::move(arguments),
                 negated](Runtime& runtime) -> Value {
                    const Value held = subject->evaluate(runtime);
                    return apply_test(runtime, name, held, arguments.evaluate(runtime)) != negated;
                });
}

ExpressionPtr negate(int line, ExpressionPtr operand) {
    return make(line, [operand = std::move(operand)](Runtime& runtime) -> Value {
        return !operand->evaluate(runtime).truthy();
    });
}

ExpressionPtr minus(int line, ExpressionPtr operand) {
    return make(line, [operand = std::move(operand)](Runtime& runtime) -> Value {
        const Value held = operand->evaluate(runtime);
        if (const auto whole = held.integer())
            return combine(runtime, Binary::subtract, std::int64_t{0}, *whole);
        if (const auto real = held.number()) return -*real;
        throw Error(fmt::format("'{}' has no negative", held.type_name()));
    });
}

ExpressionPtr binary(int line, Binary how, ExpressionPtr left, ExpressionPtr right) {
    return make(line, [how, left = std::move(left), right = std::move(right)](Runtime& runtime) {
        const Value first = left->evaluate(runtime);
        return combine(runtime, how, first, right->evaluate(runtime));
    });
}

ExpressionPtr compare(int line, ExpressionPtr first, std::vector<std::pair<Comparison, ExpressionPtr>> rest) {
    return make(line, [first = std::move(first), rest = std::move(rest)](Runtime& runtime) -> Value {
        Value left = first->evaluate(runtime);
        for (const auto& [how, operand] : rest) {
            Value right = operand->evaluate(runtime);
            if (!holds(runtime, how, left, right)) return false;
            left = std::move(right);
        }
        return true;
    });
}

ExpressionPtr either(int line, ExpressionPtr left, ExpressionPtr right) {
    return make(line, [left = std::move(left), right = std::move(right)](Runtime& runtime) {
        Value first = left->evaluate(runtime);
        return first.truthy() ? first : right->evaluate(runtime);
    });
}

ExpressionPtr both(int line, ExpressionPtr left, ExpressionPtr right) {
    return make(line, [left = std::move(left), right = std::move(right)](Runtime& runtime) {
        Value first = left->evaluate(runtime);
        return first.truthy() ? right->evaluate(runtime) : first;
    });
}

ExpressionPtr conditional(int line, ExpressionPtr condition, ExpressionPtr yes, ExpressionPtr no) {
    return make(line,
                [condition = std::move(condition), yes = std::move(yes),
                 no = std::move(no)](Runtime& runtime) -> Value {
                    if (condition->evaluate(runtime).truthy()) return yes->evaluate(runtime);
                    if (no) return no->evaluate(runtime);
                    return Value::Undefined{"the condition is false and there is no else"};
                });
}

}  // namespace tandem::tokenizer::jinja
