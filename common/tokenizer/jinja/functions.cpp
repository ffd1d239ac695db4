// Functions that transformers gives a chat template, and jinja2's own that such templates use.
#include <algorithm>
#include <ctime>

#include "common/error.h"
#include "common/tokenizer/jinja/bound.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

Value range(Runtime& runtime, const Arguments& arguments) {
    const Bound bound("range", arguments, {"/start", "/stop", "/step"}, 1);
    const bool one = !bound.given(1);
    const Integer start = one ? 0 : bound.integer(0, 0), stop = bound.integer(one ? 0 : 1, 0);
    const Integer step = bound.integer(2, 1);
    if (step == 0) throw Error("range: the step must not be 0");
    constexpr Integer kFarthest = Integer{1} << 100, kMost = 100'000;  // the latter as jinja2's sandbox
    for (const Integer number : {start, stop, step}) {
        if (number > kFarthest || number < -kFarthest) throw Error("range: an integer is too large");
    }
    const auto made = make_object<Range>(runtime, start, stop, step);
    if (made->count() > kMost) throw Error("range is too long");
    return std::shared_ptr<Object>(made);
}

std::string strftime_now(Runtime& runtime, const Arguments& arguments) {
    const Bound bound("strftime_now", arguments, {"format"}, 1);
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    char text[4096];
    constexpr std::size_t kLongest = 256;
    const std::string marked = bound.string(0) + " ";  // so that an empty result is not an error
    if (marked.size() > kLongest) throw Error("strftime_now: the format is too long");
    if (marked.find("%f") != std::string::npos || marked.find("%N") != std::string::npos) {
        throw Error("strftime_now: %f is not supported");
    }
    const std::size_t written = std::strftime(text, sizeof text, marked.c_str(), &parts);
    if (written == 0) throw Error("strftime_now: the date is too long");
    runtime.spend(written);
    return std::string(text, written - 1);
}

// dict(…), and dict.fromkeys(keys, value)
struct DictMaker : Object {
    const char* type_name() const override { return "TemplateDict"; }
    bool callable() const override { return true; }
    Value call(Runtime& runtime, const Arguments& arguments) override {
        return make_dict(runtime, arguments);
    }
    std::optional<Value> attribute(Runtime& asked_by, const std::string& name) override {
        if (name != "fromkeys") return std::nullopt;
        return function_of(asked_by, name, [](Runtime& runtime, const Arguments& arguments) {
            const Bound bound("fromkeys", arguments, {"/iterable", "/value"}, 1);
            const Value value = bound.given(1) ? *bound[1] : Value(Value::None{});
            Dict made;
            for (const Value& key : elements(runtime, *bound[0])) made.put(runtime, key, value);
            return Value::dict(runtime, std::move(made));
        });
    }
};

// Its items in turn, again and again.
struct Cycler : Object {
    explicit Cycler(List all) : items(std::move(all)) {
        int deepest = 0;
        for (const Value& item : items) deepest = std::max(deepest, item.depth());
        holds(deepest);
    }
    const char* type_name() const override { return "Cycler"; }
    std::optional<Value> attribute(Runtime& runtime, const std::string& name) override {
        if (name == "current") return items[at];
        if (name != "next" && name != "reset") return std::nullopt;
        return function_of(
            runtime, name,
            [self = std::static_pointer_cast<Cycler>(shared_from_this()), moves = name == "next"](
                Runtime&, const Arguments& arguments) -> Value {
                const Bound none("next", arguments, {});
                const Value now = self->items[self->at];
                self->at = moves ? (self->at + 1) % self->items.size() : 0;
                return moves ? now : Value(Value::None{});
            },
            depth);
    }
    List items;
    std::size_t at = 0;
};

// Nothing at its first call, the separator at each one after.
struct Joiner : Object {
    explicit Joiner(Value text) : separator(std::move(text)) { holds(separator.depth()); }
    const char* type_name() const override { return "Joiner"; }
    bool callable() const override { return true; }
    Value call(Runtime&, const Arguments& arguments) override {
        const Bound none("joiner", arguments, {});
        if (used) return separator;
        used = true;
        return "";
    }
    Value separator;
    bool used = false;
};

Value raise_exception(Runtime& runtime, const Arguments& arguments) {
    const Bound bound("raise_exception", arguments, {"message"}, 1);
    constexpr std::size_t kLongest = 4096;
    throw BadInput("the chat template refuses: " + shown(str(runtime, *bound[0]), kLongest));
}

using Globals = std::vector<std::pair<Name, Value>>;

Globals all_globals() {
    Runtime unlimited(Limits::none());
    Globals all;
    const auto add = [&](const char* name, Function function) {
        all.emplace_back(Name(name), function_of(unlimited, name, std::move(function)));
    };
    add("range", range);
    add("namespace",
        [](Runtime& at, const Arguments& a) { return at.new_namespace(*make_dict(at, a).dict()); });
    add("strftime_now", [](Runtime& at, const Arguments& a) -> Value { return strftime_now(at, a); });
    add("raise_exception", raise_exception);
    add("cycler", [](Runtime& at, const Arguments& a) -> Value {
        if (a.positional.empty() || !a.named.empty()) throw Error("cycler() needs items");
        at.spend(a.positional.size() * sizeof(Value));
        return std::shared_ptr<Object>(make_object<Cycler>(at, a.positional));
    });
    add("joiner", [](Runtime& at, const Arguments& a) -> Value {
        const Bound bound("joiner", a, {"sep"});
        return std::shared_ptr<Object>(make_object<Joiner>(at, bound.given(0) ? *bound[0] : Value(", ")));
    });
    all.emplace_back(Name("dict"), std::shared_ptr<Object>(make_object<DictMaker>(unlimited)));
    return all;
}

}  // namespace

Value make_dict(Runtime& runtime, const Arguments& arguments) {
    Dict made;
    if (arguments.positional.size() > 1) throw Error("dict() takes one mapping, or names");
    for (const Value& from : arguments.positional) {
        if (from.dict() != nullptr) {
            for (const auto& [key, value] : from.dict()->pairs()) made.put(runtime, key, value);
            continue;
        }
        for (const Value& pair : elements(runtime, from)) {
            const List parts = elements(runtime, pair);
            if (parts.size() != 2) throw Error("dict() needs pairs");
            made.put(runtime, parts[0], parts[1]);
        }
    }
    for (const auto& [key, value] : arguments.named) made.put(runtime, key, value);
    return Value::dict(runtime, std::move(made));
}

void add_functions(Runtime& runtime) {
    static const Globals kGlobals = all_globals();  // none of them has a state
    for (const auto& [name, value] : kGlobals) runtime.set_global(name, value);
}

}  // namespace tandem::tokenizer::jinja
