#include "common/tokenizer/jinja/object.h"

#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/jinja/runtime.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

struct Generator : Iterator {
    explicit Generator(std::function<std::optional<Value>(Runtime&)> one) : take(std::move(one)) {}
    std::optional<Value> next(Runtime& runtime) override { return take(runtime); }
    std::function<std::optional<Value>(Runtime&)> take;
};

IteratorPtr over_list(Value list) {
    const int depth = list.depth();
    return make_iterator(
        depth,
        [list = std::move(list), i = std::size_t{0}](Runtime& runtime) mutable -> std::optional<Value> {
            if (i >= list.items()->size()) return std::nullopt;
            runtime.look_up(0);
            return (*list.items())[i++];
        });
}

IteratorPtr over_text(Value text) {
    return make_iterator(
        0, [text = std::move(text), at = std::size_t{0}](Runtime& runtime) mutable -> std::optional<Value> {
            if (at >= text.string()->size()) return std::nullopt;
            runtime.spend(sizeof(Value));
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

IteratorPtr make_iterator(int depth, std::function<std::optional<Value>(Runtime&)> next) {
    auto made = std::make_shared<Generator>(std::move(next));
    made->holds(depth);
    return made;
}

IteratorPtr iterate(Runtime& runtime, const Value& value) {
    if (value.is_undefined()) return over_list(Value::list({}));
    if (value.items() != nullptr) return over_list(value);
    if (value.string() != nullptr) return over_text(value);
    if (value.dict() != nullptr) return std::make_shared<View>(value, View::Of::keys)->iterate(runtime);
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
    List out;
    while (auto one = from->next(runtime)) {
        runtime.spend(sizeof(Value));
        out.push_back(std::move(*one));
    }
    return out;
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

void Namespace::set(Runtime& runtime, const std::string& name, Value value) {
    if (name.starts_with('_')) {
        throw Error("a namespace cannot hold names that begin with an underscore, found '" + name + "'");
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

IteratorPtr Range::iterate(Runtime&) {
    return make_iterator(
        0,
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

Value View::at(std::size_t i) const {
    const auto& [key, value] = dict.dict()->pairs()[i];
    return part == Of::keys ? key : part == Of::values ? value : Value::tuple({key, value});
}

IteratorPtr View::iterate(Runtime&) {
    return make_iterator(
        depth, [view = *this, i = std::size_t{0}](Runtime& runtime) mutable -> std::optional<Value> {
            if (i >= view.dict.dict()->size()) return std::nullopt;
            runtime.spend(view.part == Of::items ? 3 * sizeof(Value) : 0);
            runtime.look_up(0);
            return view.at(i++);
        });
}

void View::print(Runtime& runtime, Text& out) const {
    out += std::string(type_name()) + "([";
    for (std::size_t i = 0; i < dict.dict()->size(); ++i) {
        if (i > 0) out += ", ";
        print_repr(runtime, out, at(i));
    }
    out += "])";
}

}  // namespace tandem::tokenizer::jinja
