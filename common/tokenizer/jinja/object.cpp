#include "common/tokenizer/jinja/object.h"

#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/jinja/items.h"
#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

struct Generator : Iterator {
    explicit Generator(std::function<std::optional<Value>(Runtime&)> one) : take(std::move(one)) {}
    std::optional<Value> next(Runtime& runtime) override { return take(runtime); }
    std::function<std::optional<Value>(Runtime&)> take;
};

IteratorPtr over_list(Runtime& made_by, Value list) {
    const int depth = list.depth();
    return make_iterator(
        made_by, depth,
        [list = std::move(list), i = std::size_t{0}](Runtime& runtime) mutable -> std::optional<Value> {
            if (i >= list.items()->size()) return std::nullopt;
            runtime.look_up(0);
            return (*list.items())[i++];
        });
}

IteratorPtr over_text(Runtime& made_by, Value text) {
    return make_iterator(
        made_by, 0,
        [text = std::move(text), at = std::size_t{0}](Runtime& runtime) mutable -> std::optional<Value> {
            if (at >= text.string()->size()) return std::nullopt;
            runtime.spend(Value::kOfString);
            const std::size_t begin = at;
            at = next_character(*text.string(), at);
            return Value(text.string()->substr(begin, at - begin));
        });
}

}  // namespace

void Object::holds(int depth_of_parts) {
    depth = depth_of_parts + 1;
    if (depth > Value::kDeepest) throw Error("values are nested too deep");
}

Value Object::call(Runtime&, const Arguments&) {
    throw Error(fmt::format("'{}' object is not callable", type_name()));
}

void Object::print(Runtime&, Text&) const {
    throw Error(fmt::format("a {} object cannot be printed: Python would print its address", type_name()));
}

IteratorPtr Iterator::iterate(Runtime&) {
    return std::static_pointer_cast<Iterator>(shared_from_this());
}

IteratorPtr make_iterator(Runtime& runtime, int depth, std::function<std::optional<Value>(Runtime&)> next) {
    constexpr std::size_t kOfClosure = 64;
    runtime.spend(kOfClosure);
    auto made = make_object<Generator>(runtime, std::move(next));
    made->holds(depth);
    return made;
}

Value function_of(Runtime& runtime, const std::string& name, Function function, int depth_of_parts) {
    constexpr std::size_t kOfClosure = 96;
    runtime.spend(kOfClosure + name.size());
    const auto made = make_object<Callable>(runtime, name, std::move(function));
    made->holds(depth_of_parts);
    return Value(std::shared_ptr<Object>(made));
}

IteratorPtr iterate(Runtime& runtime, const Value& value) {
    if (value.is_undefined()) return over_list(runtime, Value::list(runtime, {}));
    if (value.items() != nullptr) return over_list(runtime, value);
    if (value.string() != nullptr) return over_text(runtime, value);
    if (value.dict() != nullptr) return make_object<View>(runtime, value, View::Of::keys)->iterate(runtime);
    IteratorPtr made = value.object() != nullptr ? (*value.object())->iterate(runtime) : nullptr;
    if (made == nullptr) throw Error(fmt::format("'{}' object is not iterable", value.type_name()));
    return made;
}

bool is_iterable(Runtime& runtime, const Value& value) {
    if (value.object() != nullptr) return (*value.object())->iterate(runtime) != nullptr;
    return !value.is_none() && !value.is_number();
}

List elements(Runtime& runtime, const Value& value) {
    if (value.items() != nullptr) {
        runtime.spend(value.items()->size() * sizeof(Value));
        return *value.items();
    }
    const IteratorPtr from = iterate(runtime, value);
    Items out(runtime);
    while (auto one = from->next(runtime)) out.add(std::move(*one));
    return out.take();
}

std::optional<Value> Namespace::attribute(Runtime& runtime, const std::string& name) {
    const Value* found = entries.find_name(runtime, name);
    return found == nullptr ? std::nullopt : std::optional(*found);
}

void Namespace::print(Runtime& runtime, Text& out) const {
    const Runtime::Level level(runtime);  // it may hold itself
    out += "<Namespace ";
    bool first = true;
    out += '{';
    for (const auto& [key, value] : entries.pairs()) {
        if (!first) out += ", ";
        first = false;
        print_repr(runtime, out, key);
        out += ": ";
        print_repr(runtime, out, value);
    }
    out += "}>";
}

void Namespace::set(Runtime& runtime, const Name& name, Value value) {
    if (name.text().starts_with('_')) {
        throw Error("a namespace cannot hold names that begin with an underscore, found '" +
                    shown(name.text()) + "'");
    }
    entries.put(runtime, name, std::move(value));
}

std::optional<Value> Range::attribute(Runtime&, const std::string& name) {
    if (name == "start") return start;
    if (name == "stop") return stop;
    if (name == "step") return step;
    return std::nullopt;
}

Integer Range::count() const {
    const Integer span = step > 0 ? stop - start : start - stop, by = step > 0 ? step : -step;
    return span <= 0 ? 0 : (span - 1) / by + 1;
}

bool Range::contains(Integer value) const {
    const Integer from = step > 0 ? value - start : start - value;
    const bool within = from >= 0 && (step > 0 ? value < stop : value > stop);
    return within && from % (step > 0 ? step : -step) == 0;
}

IteratorPtr Range::iterate(Runtime& made_by) {
    return make_iterator(
        made_by, 0,
        [range = *this, count = count(), i = Integer{0}](Runtime& runtime) mutable -> std::optional<Value> {
            if (i >= count) return std::nullopt;
            runtime.look_up(0);
            return Value(range.at(i++));
        });
}

void Range::print(Runtime&, Text& out) const {
    out += "range(" + to_text(start) + ", " + to_text(stop) + (step == 1 ? "" : ", " + to_text(step)) + ")";
}

const char* View::type_name() const {
    return part == Of::keys ? "dict_keys" : part == Of::values ? "dict_values" : "dict_items";
}

Value View::at(Runtime& runtime, std::size_t i) const {
    const auto& [key, value] = dict.dict()->pairs()[i];
    if (part != Of::items) return part == Of::keys ? key : value;
    runtime.spend(2 * sizeof(Value));
    return Value::tuple(runtime, {key, value});
}

IteratorPtr View::iterate(Runtime& made_by) {
    return make_iterator(
        made_by, depth, [view = *this, i = std::size_t{0}](Runtime& runtime) mutable -> std::optional<Value> {
            if (i >= view.dict.dict()->size()) return std::nullopt;
            runtime.look_up(0);
            return view.at(runtime, i++);
        });
}

void View::print(Runtime& runtime, Text& out) const {
    out += std::string(type_name()) + "([";
    for (std::size_t i = 0; i < dict.dict()->size(); ++i) {
        if (i > 0) out += ", ";
        print_repr(runtime, out, at(runtime, i));
    }
    out += "])";
}

}  // namespace tandem::tokenizer::jinja
