// Macros: parts of a template that are called like functions.
#include <algorithm>
#include <set>

#include "common/error.h"
#include "common/tokenizer/jinja/statements.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

struct MacroObject : Object {
    MacroObject(const MacroBody& macro, FramePtr around) : what(macro), scope(std::move(around)) {}
    const char* type_name() const override { return "Macro"; }
    bool callable() const override { return true; }
    Value call(Runtime& runtime, const Arguments& given) override;
    std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
    void print(Runtime&, Text& out) const override {
        out += what.name.empty() ? std::string("<Macro anonymous>") : "<Macro '" + what.name + "'>";
    }
    bool has(const char* parameter) const {
        return std::any_of(what.parameters.begin(), what.parameters.end(),
                           [&](const auto& one) { return one.first.text() == parameter; });
    }
    void bind(Runtime& runtime, const Arguments& given) const;
    const MacroBody& what;
    FramePtr scope;
};

std::optional<Value> MacroObject::attribute(Runtime& runtime, const std::string& name) {
    if (name == "name") return what.name.empty() ? Value(Value::None{}) : Value(what.name);
    if (name == "catch_kwargs") return Value(what.reads_kwargs);
    if (name == "catch_varargs") return Value(what.reads_varargs);
    if (name == "caller") return Value(what.reads_caller);
    if (name != "arguments") return std::nullopt;
    List names;
    runtime.spend(what.parameters.size() * sizeof(Value));
    for (const auto& [parameter, unused] : what.parameters) names.push_back(parameter.key());
    return Value::tuple(runtime, std::move(names));
}

// In the frame of the call.
void MacroObject::bind(Runtime& runtime, const Arguments& given) const {
    const std::size_t placed = std::min(given.positional.size(), what.parameters.size());
    Dict named(runtime, given.named);
    if (named.size() != given.named.size())
        throw Error(fmt::format("macro '{}' got an argument twice", what.name));
    std::set<const Value*> taken;
    const auto take = [&](const Name& name) {
        const Value* found = named.find(runtime, name);
        if (found != nullptr) taken.insert(found);
        return found;
    };
    static const Name kCallerName("caller"), kKwargs("kwargs"), kVarargs("varargs");
    for (std::size_t i = 0; i < what.parameters.size(); ++i) {
        const auto& [name, otherwise] = what.parameters[i];
        const Value* value = i < placed ? &given.positional[i] : take(name);
        if (value != nullptr) {
            runtime.set(name, *value);
        } else if (otherwise) {
            runtime.set(name, otherwise->evaluate(runtime));
        } else {
            runtime.set(name, undefined(runtime, "parameter '" + shown(name.text()) + "' was not provided"));
        }
    }
    if (what.reads_caller && !has("caller")) {
        const Value* caller = take(kCallerName);
        const bool none = caller == nullptr || caller->is_none();
        runtime.set(kCallerName, none ? undefined(runtime, "No caller defined") : *caller);
    }
    Dict rest;
    for (const auto& [name, value] : named.pairs()) {
        if (taken.count(&value) == 0) rest.put(runtime, name, value);
    }
    if (rest.size() > 0 && !what.reads_kwargs) {
        throw Error(fmt::format("macro '{}' takes no argument '{}'", what.name,
                                shown(*rest.pairs()[0].first.string())));
    }
    if (what.reads_kwargs && !has("kwargs")) runtime.set(kKwargs, Value::dict(runtime, std::move(rest)));
    if (given.positional.size() > placed && !what.reads_varargs) {
        throw Error(
            fmt::format("macro '{}' takes not more than {} arguments", what.name, what.parameters.size()));
    }
    if (what.reads_varargs && !has("varargs")) {
        runtime.spend((given.positional.size() - placed) * sizeof(Value));
        runtime.set(kVarargs,
                    Value::tuple(runtime, List(given.positional.begin() + static_cast<std::ptrdiff_t>(placed),
                                               given.positional.end())));
    }
}

Value MacroObject::call(Runtime& runtime, const Arguments& given) {
    const auto kept = shared_from_this();  // it may replace itself
    const Runtime::Level level(runtime);
    return runtime.capture([&] {
        runtime.in_frame(scope, [&] {
            bind(runtime, given);
            what.body.run(runtime);
        });
    });
}

}  // namespace

Value MacroBody::made(Runtime& runtime) const {
    runtime.spend(sizeof(Frame));  // which it keeps
    return std::shared_ptr<Object>(make_object<MacroObject>(runtime, *this, runtime.frame()));
}

}  // namespace tandem::tokenizer::jinja
