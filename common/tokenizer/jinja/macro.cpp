// Macros: parts of a template that are called like functions.
#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/jinja/statements.h"

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
                           [&](const auto& one) { return one.first == parameter; });
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
    for (const auto& [parameter, unused] : what.parameters) names.emplace_back(parameter);
    return Value::tuple(std::move(names));
}

// In the frame of the call.
void MacroObject::bind(Runtime& runtime, const Arguments& given) const {
    const std::size_t placed = std::min(given.positional.size(), what.parameters.size());
    Dict named(runtime, given.named);
    if (named.size() != given.named.size())
        throw Error(fmt::format("macro '{}' got an argument twice", what.name));
    std::vector<std::string> taken;
    const auto take = [&](const std::string& name) {
        const Value* found = named.find_name(runtime, name);
        if (found != nullptr) taken.push_back(name);
        return found;
    };
    for (std::size_t i = 0; i < what.parameters.size(); ++i) {
        const auto& [name, otherwise] = what.parameters[i];
        const Value* value = i < placed ? &given.positional[i] : take(name);
        if (value != nullptr) {
            runtime.set(name, *value);
        } else if (otherwise) {
            runtime.set(name, otherwise->evaluate(runtime));
        } else {
            runtime.set(name, Value::Undefined{fmt::format("parameter '{}' was not provided", name)});
        }
    }
    if (what.reads_caller && !has("caller")) {
        const Value* caller = take("caller");
        const bool none = caller == nullptr || caller->is_none();
        runtime.set("caller", none ? Value(Value::Undefined{"No caller defined"}) : *caller);
    }
    Dict rest;
    for (const auto& [name, value] : named.pairs()) {
        if (std::find(taken.begin(), taken.end(), *name.string()) == taken.end())
            rest.put(runtime, name, value);
    }
    if (rest.size() > 0 && !what.reads_kwargs) {
        throw Error(
            fmt::format("macro '{}' takes no argument '{}'", what.name, *rest.pairs()[0].first.string()));
    }
    if (what.reads_kwargs && !has("kwargs")) runtime.set("kwargs", Value::dict(std::move(rest)));
    if (given.positional.size() > placed && !what.reads_varargs) {
        throw Error(
            fmt::format("macro '{}' takes not more than {} arguments", what.name, what.parameters.size()));
    }
    if (what.reads_varargs && !has("varargs")) {
        runtime.set("varargs",
                    Value::tuple(List(given.positional.begin() + static_cast<std::ptrdiff_t>(placed),
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
    runtime.spend(sizeof(MacroObject));
    runtime.keep(runtime.frame());
    return std::shared_ptr<Object>(std::make_shared<MacroObject>(*this, runtime.frame()));
}

}  // namespace tandem::tokenizer::jinja
