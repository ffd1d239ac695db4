#include "common/tokenizer/jinja/statements.h"

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"

namespace tandem::tokenizer::jinja {
namespace {

// What a filter makes of the block's text.
Value filtered(Runtime& runtime, const ExpressionPtr& filter, std::string text) {
    Value result;
    runtime.in_frame(runtime.frame(), [&] {
        static const Name kText(kBlock);
        runtime.set(kText, std::move(text));
        result = filter->evaluate(runtime);
    });
    return result;
}

}  // namespace

Flow Body::run(Runtime& runtime) const {
    const Runtime::Level level(runtime);
    constexpr std::size_t kOfStatement = 16;
    runtime.work(kOfStatement * statements_.size());
    for (const StatementPtr& statement : statements_) {
        if (const Flow flow = statement->run(runtime); flow != Flow::next) return flow;
    }
    return Flow::next;
}

void Target::assign(Runtime& runtime, Value value) const {
    if (attribute) {
        const Value held = runtime.find(*name);
        auto* space = held.as<Namespace>();
        if (space == nullptr) throw Error("cannot assign attribute on non-namespace object");
        return space->set(runtime, *attribute, std::move(value));
    }
    if (!several) return runtime.set(*name, std::move(value));
    List values = elements(runtime, value);
    if (values.size() != parts.size()) {
        throw Error(fmt::format("{} values for {} variables", values.size(), parts.size()));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].assign(runtime, std::move(values[i]));
}

Flow TextStatement::run(Runtime& runtime) const {
    runtime.write(text);
    return Flow::next;
}

Flow Output::run(Runtime& runtime) const {
    for (const ExpressionPtr& value : values) {
        const Value made = value->evaluate(runtime);
        runtime.write(made.string() != nullptr ? *made.string() : str(runtime, made));
    }
    return Flow::next;
}

Flow If::run(Runtime& runtime) const {
    for (const auto& [condition, body] : branches) {
        if (condition->evaluate(runtime).truthy()) return body.run(runtime);
    }
    return otherwise.run(runtime);
}

Flow Set::run(Runtime& runtime) const {
    target.assign(runtime, value->evaluate(runtime));
    return Flow::next;
}

// A block that break or continue leaves gives nothing.
Flow SetBlock::run(Runtime& runtime) const {
    Flow flow = Flow::next;
    std::string text =
        runtime.capture([&] { runtime.in_frame(runtime.frame(), [&] { flow = body.run(runtime); }); });
    if (flow != Flow::next) return flow;
    target.assign(runtime, filter ? filtered(runtime, filter, std::move(text)) : Value(std::move(text)));
    return Flow::next;
}

Flow FilterBlock::run(Runtime& runtime) const {
    Flow flow = Flow::next;
    std::string text =
        runtime.capture([&] { runtime.in_frame(runtime.frame(), [&] { flow = body.run(runtime); }); });
    if (flow != Flow::next) return flow;
    const Value result = filtered(runtime, filter, std::move(text));
    if (result.string() == nullptr) throw Error("the filter of a block must give text");
    runtime.write(*result.string());
    return Flow::next;
}

Flow Macro::run(Runtime& runtime) const {
    runtime.set(Name(macro.name), macro.made(runtime));
    return Flow::next;
}

Flow CallBlock::run(Runtime& runtime) const {
    Value result;
    const Value made = caller.made(runtime);
    runtime.in_frame(runtime.frame(), [&] {
        static const Name kMade(kCaller);
        runtime.set(kMade, made);
        result = call->evaluate(runtime);
    });
    runtime.write(str(runtime, result));
    return Flow::next;
}

Flow With::run(Runtime& runtime) const {
    List given;
    for (const auto& [target, value] : values) given.push_back(value->evaluate(runtime));
    Flow flow = Flow::next;
    runtime.in_frame(runtime.frame(), [&] {
        for (std::size_t i = 0; i < values.size(); ++i) values[i].first.assign(runtime, given[i]);
        flow = body.run(runtime);
    });
    return flow;
}

Flow Block::run(Runtime& runtime) const {
    runtime.in_frame(scoped ? runtime.frame() : runtime.template_frame(), [&] { body.run(runtime); });
    return Flow::next;
}

Flow Refusal::run(Runtime&) const {
    throw Error("{% " + keyword + " %}: a chat template has no other templates beside it");
}

}  // namespace tandem::tokenizer::jinja
