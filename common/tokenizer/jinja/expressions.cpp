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
    if (!ordered) return false;  // NaN
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

List all_of(Runtime& runtime, const std::vector<ExpressionPtr>& items) {
    runtime.spend(items.size() * sizeof(Value));
    List out;
    out.reserve(items.size());
    for (const ExpressionPtr& item : items) out.push_back(item->evaluate(runtime));
    return out;
}

}  // namespace

// --- arguments, literals and names

Arguments ArgumentExpressions::evaluate(Runtime& runtime) const {
    Arguments out;
    runtime.spend(positional.size() * sizeof(Value) + named.size() * sizeof(Entries::value_type));
    out.positional.reserve(positional.size());
    out.named.reserve(named.size());
    for (const ExpressionPtr& one : positional) out.positional.push_back(one->evaluate(runtime));
    for (const auto& [key, one] : named) out.named.emplace_back(key, one->evaluate(runtime));
    if (more_positional) {
        for (Value& one : elements(runtime, more_positional->evaluate(runtime))) {
            out.positional.push_back(std::move(one));
        }
    }
    if (more_named) {
        const Value more = more_named->evaluate(runtime);
        if (more.dict() == nullptr)
            throw Error(fmt::format("'{}' behind ** is no dictionary", more.type_name()));
        for (const auto& [key, value] : more.dict()->pairs()) {
            if (key.string() == nullptr) throw Error("names of arguments must be strings");
            runtime.spend(2 * sizeof(Entries::value_type) + key.string()->size());
            out.named.emplace_back(*key.string(), value);
        }
    }
    return out;
}

ExpressionPtr literal(int line, Value value) {
    return make(line, [value = std::move(value)](Runtime&) { return value; });
}

ExpressionPtr name(int line, std::string name) {
    return make(line, [name = Name(std::move(name))](Runtime& runtime) { return runtime.find(name); });
}

ExpressionPtr list_of(int line, std::vector<ExpressionPtr> items) {
    return make(line, [items = std::move(items)](Runtime& runtime) {
        return Value::list(runtime, all_of(runtime, items));
    });
}

ExpressionPtr tuple_of(int line, std::vector<ExpressionPtr> items) {
    return make(line, [items = std::move(items)](Runtime& runtime) {
        return Value::tuple(runtime, all_of(runtime, items));
    });
}

ExpressionPtr dict_of(int line, std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries) {
    return make(line, [entries = std::move(entries)](Runtime& runtime) {
        Dict out;
        for (const auto& [key, item] : entries) {
            Value name = key->evaluate(runtime);
            out.put(runtime, std::move(name), item->evaluate(runtime));
        }
        return Value::dict(runtime, std::move(out));
    });
}

// --- parts of a value

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

// --- calls, filters and tests

Value Call::value(Runtime& runtime) const {
    const Value held = callee_->evaluate(runtime);
    if (name_.empty()) return jinja::call(runtime, held, arguments.evaluate(runtime));
    if (has_method(held, name_)) {
        return jinja::call_method(runtime, held, name_, arguments.evaluate(runtime));
    }
    const Value function = attribute(runtime, held, name_);
    if (function.is_undefined()) {
        throw Error(fmt::format("'{}' object has no method '{}' here", held.type_name(), name_));
    }
    return jinja::call(runtime, function, arguments.evaluate(runtime));
}

ExpressionPtr call(int line, ExpressionPtr callee, ArgumentExpressions arguments) {
    return std::make_unique<Call>(line, std::move(callee), "", std::move(arguments));
}

ExpressionPtr call_method(int line, ExpressionPtr object, std::string name, ArgumentExpressions arguments) {
    return std::make_unique<Call>(line, std::move(object), std::move(name), std::move(arguments));
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

// --- operators: of one side, of two, comparisons, conditions

ExpressionPtr negate(int line, ExpressionPtr operand) {
    return make(line, [operand = std::move(operand)](Runtime& runtime) -> Value {
        return !operand->evaluate(runtime).truthy();
    });
}

ExpressionPtr minus(int line, ExpressionPtr operand) {
    return make(line, [operand = std::move(operand)](Runtime& runtime) {
        return negative(operand->evaluate(runtime));
    });
}

ExpressionPtr plus(int line, ExpressionPtr operand) {
    return make(line, [operand = std::move(operand)](Runtime& runtime) {
        return negative(negative(operand->evaluate(runtime)));
    });
}

ExpressionPtr refusal(int line, std::string message) {
    return make(line, [message = std::move(message)](Runtime&) -> Value { throw Error(message); });
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
                    return undefined(runtime, "the condition is false and there is no else");
                });
}

}  // namespace tandem::tokenizer::jinja
