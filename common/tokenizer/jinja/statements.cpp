#include "common/tokenizer/jinja/statements.h"

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"

namespace tandem::tokenizer::jinja {
namespace {

// The variable `loop` in the round of items[i].
Value loop_variable(const List& items, std::size_t i) {
    const auto number = [](std::size_t n) { return Value(static_cast<std::int64_t>(n)); };
    const std::size_t count = items.size();
    Entries loop = {{"index", number(i + 1)},
                    {"index0", number(i)},
                    {"revindex", number(count - i)},
                    {"revindex0", number(count - i - 1)},
                    {"first", i == 0},
                    {"last", i + 1 == count},
                    {"length", number(count)}};
    if (i > 0) loop.emplace_back("previtem", items[i - 1]);
    if (i + 1 < count) loop.emplace_back("nextitem", items[i + 1]);
    return Value::dict(std::move(loop));
}

}  // namespace

Flow Body::run(Runtime& runtime) const {
    const Runtime::Level level(runtime);
    for (const StatementPtr& statement : statements_) {
        if (const Flow flow = statement->run(runtime); flow != Flow::next) return flow;
    }
    return Flow::next;
}

Flow Text::run(Runtime& runtime) const {
    runtime.write(text);
    return Flow::next;
}

Flow Output::run(Runtime& runtime) const {
    runtime.write(value->evaluate(runtime).str());
    return Flow::next;
}

Flow If::run(Runtime& runtime) const {
    for (const auto& [condition, body] : branches) {
        if (condition->evaluate(runtime).truthy()) return body.run(runtime);
    }
    return otherwise.run(runtime);
}

void For::bind(Runtime& runtime, const Value& item) const {
    if (targets.size() == 1) return runtime.set(targets[0], item);
    const List parts = elements(runtime, item);
    if (parts.size() != targets.size()) {
        throw Error(fmt::format("{} values for {} loop variables", parts.size(), targets.size()));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) runtime.set(targets[i], parts[i]);
}

Flow For::run(Runtime& runtime) const {
    List items;
    for (Value& item : elements(runtime, over->evaluate(runtime))) {
        bool wanted = true;
        if (condition) {
            runtime.in_frame(false, [&] {
                bind(runtime, item);
                wanted = condition->evaluate(runtime).truthy();
            });
        }
        if (wanted) items.push_back(std::move(item));
    }
    if (items.empty()) return otherwise.run(runtime);
    Flow flow = Flow::next;
    for (std::size_t i = 0; i < items.size() && flow != Flow::leave_loop; ++i) {
        runtime.step(over->line());
        runtime.in_frame(false, [&] {
            runtime.set("loop", loop_variable(items, i));
            bind(runtime, items[i]);
            flow = body.run(runtime);
        });
    }
    return Flow::next;
}

Flow Set::run(Runtime& runtime) const {
    Value result = value ? value->evaluate(runtime) : Value(runtime.capture([&] { body.run(runtime); }));
    if (!attribute.empty()) {
        const Value held = runtime.find(targets[0]);
        Value::Namespace* space = held.space();
        if (space == nullptr) throw Error("cannot assign attribute on non-namespace object");
        for (auto& [key, old] : space->entries) {
            if (key == attribute) {
                old = std::move(result);
                return Flow::next;
            }
        }
        runtime.spend(sizeof(Value));
        space->entries.emplace_back(attribute, std::move(result));
        return Flow::next;
    }
    if (targets.size() == 1) {
        runtime.set(targets[0], std::move(result));
        return Flow::next;
    }
    const List parts = elements(runtime, result);
    if (parts.size() != targets.size()) {
        throw Error(fmt::format("{} values for {} variables", parts.size(), targets.size()));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) runtime.set(targets[i], parts[i]);
    return Flow::next;
}

Flow Macro::run(Runtime& runtime) const {
    runtime.set(name,
                Function([this, &runtime](const Arguments& arguments) { return call(runtime, arguments); }));
    return Flow::next;
}

Value Macro::call(Runtime& runtime, const Arguments& arguments) const {
    if (arguments.positional.size() > parameters.size()) {
        throw Error(fmt::format("macro '{}' takes not more than {} arguments", name, parameters.size()));
    }
    for (const auto& [key, unused] : arguments.named) {
        bool known = false;
        for (const auto& [parameter, otherwise] : parameters) known = known || parameter == key;
        if (!known) throw Error(fmt::format("macro '{}' takes no argument '{}'", name, key));
    }
    return runtime.capture([&] {
        runtime.in_frame(true, [&] {
            for (std::size_t i = 0; i < parameters.size(); ++i) {
                const auto& [key, otherwise] = parameters[i];
                if (const Value* given = arguments.find(i, key)) {
                    runtime.set(key, *given);
                } else if (otherwise) {
                    runtime.set(key, otherwise->evaluate(runtime));
                } else {
                    runtime.set(key, Value::Undefined{fmt::format("parameter '{}' was not provided", key)});
                }
            }
            body.run(runtime);
        });
    });
}

}  // namespace tandem::tokenizer::jinja
