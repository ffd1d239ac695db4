// Getting at the parts of a value.
#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/items.h"
#include "common/tokenizer/jinja/search.h"

namespace tandem::tokenizer::jinja {
namespace {

[[noreturn]] void fail_undefined(const Value& value) {
    throw Error(*value.get<Value::Undefined>()->what);
}

// object[index] of what has places. nullopt: Python raises, and jinja2 looks further.
std::optional<Value> place_of(Runtime& runtime, const Value& object, Integer index) {
    const auto* range = object.as<Range>();
    if (object.items() == nullptr && object.string() == nullptr && range == nullptr) return std::nullopt;
    const Integer count = length(runtime, object);
    if (index < 0) index += count;
    if (index < 0 || index >= count) return std::nullopt;
    if (range != nullptr) return range->at(index);
    const auto place = static_cast<std::size_t>(index);
    if (object.items() != nullptr) return (*object.items())[place];
    const std::string& text = *object.string();
    runtime.work(text.size());
    const std::size_t begin = bytes_of(text, place), end = next_character(text, begin);
    runtime.spend(Value::kOfString);
    const std::string one = text.substr(begin, end - begin);
    return object.is_markup() ? Value::markup(one) : Value(one);
}

std::optional<Value> item_of(Runtime& runtime, const Value& object, const Value& index) {
    if (object.dict() != nullptr) {
        if (index.items() != nullptr && !index.is_tuple()) return std::nullopt;  // unhashable
        if (index.dict() != nullptr) return std::nullopt;
        const Value* found = object.dict()->find(runtime, index);
        return found == nullptr ? std::nullopt : std::optional(*found);
    }
    return index.integer() ? place_of(runtime, object, *index.integer()) : std::nullopt;
}

// What Python has and we do not: refused, where anything else that is not there is undefined.
bool is_unsupported(const Value& object, const std::string& name) {
    static const std::map<std::string_view, std::vector<std::string_view>> kNames = {
        {"str", {"encode", "translate", "maketrans", "format_map"}},
        {"Markup", {"encode", "translate", "maketrans", "format_map", "escape"}},
        {"int", {"to_bytes", "from_bytes", "as_integer_ratio", "is_integer"}},
        {"bool", {"to_bytes", "from_bytes", "as_integer_ratio", "is_integer"}},
        {"float", {"hex", "fromhex", "as_integer_ratio"}},
        {"dict", {"fromkeys"}},
        {"dict_keys", {"isdisjoint", "mapping"}},
        {"dict_values", {"mapping"}},
        {"dict_items", {"isdisjoint", "mapping"}},
        {"generator", {"send", "throw", "close", "gi_running", "gi_yieldfrom", "gi_suspended"}}};
    const auto of_type = kNames.find(object.type_name());
    return of_type != kNames.end() && std::count(of_type->second.begin(), of_type->second.end(), name) > 0;
}

// What Python's getattr finds and the sandbox lets through.
std::optional<Value> attribute_of(Runtime& runtime, const Value& object, const std::string& name) {
    if (has_method(object, name)) {
        const auto run = [object, name](Runtime& at, const Arguments& given) {
            return call_method(at, object, name, given);
        };
        return function_of(runtime, name, run, object.depth());
    }
    if (is_unsupported(object, name)) {
        throw Error(fmt::format("'{}' of a '{}' is not supported", shown(name), object.type_name()));
    }
    if (object.object() != nullptr) return (*object.object())->attribute(runtime, name);
    if (object.is_group() && name == "grouper") return (*object.items())[0];
    if (object.is_group() && name == "list") return (*object.items())[1];
    if (object.is_number()) {
        const auto whole = object.integer();
        if (name == "real") return whole ? Value(*whole) : object;
        if (name == "imag") return whole ? Value(0) : Value(0.0);
        if (whole && name == "numerator") return *whole;
        if (whole && name == "denominator") return Value(1);
    }
    return std::nullopt;
}

[[noreturn]] void fail_slice(const Value& object) {
    throw Error(fmt::format("'{}' object cannot be sliced", object.type_name()));
}

Value missing(Runtime& runtime, const Value& object, const Value& name) {
    if (object.is_none()) {
        return undefined(runtime, "'None' has no attribute '" + shown(str(runtime, name)) + "'");
    }
    if (name.string() == nullptr) {
        const std::string which =
            name.is_number() ? repr(runtime, name) : std::string("of type ") + name.type_name();
        return undefined(runtime, fmt::format("{} object has no element {}", object.type_name(), which));
    }
    return undefined(
        runtime, fmt::format("'{} object' has no attribute '{}'", object.type_name(), shown(*name.string())));
}

}  // namespace

Integer length(Runtime& runtime, const Value& value) {
    if (value.is_undefined()) return 0;
    if (value.items() != nullptr) return static_cast<Integer>(value.items()->size());
    if (value.dict() != nullptr) return static_cast<Integer>(value.dict()->size());
    if (value.string() != nullptr) {
        runtime.work(value.string()->size());
        return static_cast<Integer>(count_characters(*value.string()));
    }
    if (value.object() != nullptr) {
        if (const auto count = (*value.object())->length(runtime)) return *count;
    }
    throw Error(fmt::format("object of type '{}' has no len()", value.type_name()));
}

Value attribute(Runtime& runtime, const Value& object, const std::string& name) {
    if (object.is_undefined()) fail_undefined(object);
    if (const auto found = attribute_of(runtime, object, name)) return *found;
    if (object.dict() != nullptr) {
        if (const Value* found = object.dict()->find_name(runtime, name)) return *found;
    }
    return missing(runtime, object, name);
}

Value subscript(Runtime& runtime, const Value& object, const Value& index) {
    if (object.is_undefined()) fail_undefined(object);
    if (const auto found = item_of(runtime, object, index)) return *found;
    if (index.string() != nullptr) {
        if (const auto found = attribute_of(runtime, object, *index.string())) return *found;
    }
    return missing(runtime, object, index);
}

Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
    if (object.is_undefined()) fail_undefined(object);
    const auto* range = object.as<Range>();
    if (object.items() == nullptr && object.string() == nullptr && range == nullptr) {
        fail_slice(object);
    }
    const Integer count = length(runtime, object);
    const auto number = [](const Value& value) -> std::optional<Integer> {
        if (value.is_none()) return std::nullopt;
        if (!value.integer()) throw Error("slice indices must be integers");
        return value.integer();
    };
    const Integer by = number(step).value_or(1);
    if (by == 0) throw Error("slice step cannot be zero");
    const auto bound = [&](const Value& given, Integer otherwise) {
        const auto at = number(given);
        if (!at) return otherwise;
        return std::clamp<Integer>(*at < 0 ? *at + count : *at, by < 0 ? -1 : 0, by < 0 ? count - 1 : count);
    };
    const Integer from = bound(start, by < 0 ? count - 1 : 0), to = bound(stop, by < 0 ? -1 : count);
    if (range != nullptr) {
        return std::shared_ptr<Object>(make_object<Range>(runtime, range->at(from), range->at(to),
                                                          compute(Whole::multiply, range->step, by)));
    }
    if (object.string() != nullptr) {
        const std::string& text = *object.string();
        runtime.work(text.size());
        Text out(runtime);
        if (by == 1) {
            const std::size_t begin = bytes_of(text, static_cast<std::size_t>(from));
            const auto wanted = static_cast<std::size_t>(std::max<Integer>(to - from, 0));
            const std::string_view rest = std::string_view(text).substr(begin);
            out += rest.substr(0, bytes_of(rest, wanted));
        } else {
            std::vector<std::size_t> places;  // where each character begins
            runtime.spend((static_cast<std::size_t>(count) + 1) * sizeof(std::size_t));
            places.reserve(static_cast<std::size_t>(count) + 1);
            for (std::size_t at = 0; at < text.size(); at = next_character(text, at)) places.push_back(at);
            places.push_back(text.size());
            for (Integer at = from; by > 0 ? at < to : at > to;
                 at += std::clamp<Integer>(by, -count - 1, count + 1)) {
                const auto i = static_cast<std::size_t>(at);
                out += std::string_view(text).substr(places[i], places[i + 1] - places[i]);
            }
        }
        return object.is_markup() ? Value::markup(out.take()) : Value(out.take());
    }
    Items out(runtime);
    for (Integer at = from; by > 0 ? at < to : at > to;
         at += std::clamp<Integer>(by, -count - 1, count + 1)) {
        out.add((*object.items())[static_cast<std::size_t>(at)]);
    }
    return object.is_tuple() ? Value::tuple(runtime, out.take()) : out.list();
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
    if (container.string() != nullptr) {
        if (item.string() == nullptr) {
            throw Error(
                fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
        }
        return find_first(runtime, *container.string(), *item.string()) != std::string_view::npos;
    }
    const auto* view = container.as<View>();
    if (container.dict() != nullptr || (view != nullptr && view->part == View::Of::keys)) {
        return (view != nullptr ? view->dict.dict() : container.dict())->find(runtime, item) != nullptr;
    }
    if (const auto* range = container.as<Range>(); range != nullptr && item.integer()) {
        return range->contains(*item.integer());
    }
    if (container.object() != nullptr || container.is_none() || container.is_number()) {
        if (!is_iterable(runtime, container)) {
            throw Error(fmt::format("argument of type '{}' is not iterable", container.type_name()));
        }
    }
    const IteratorPtr all = iterate(runtime, container);
    while (const auto one = all->next(runtime)) {
        if (equal(runtime, *one, item)) return true;
    }
    return false;
}

Value call(Runtime& runtime, const Value& function, const Arguments& arguments) {
    if (function.is_undefined()) fail_undefined(function);
    if (function.object() == nullptr) {
        throw Error(fmt::format("'{}' object is not callable", function.type_name()));
    }
    return (*function.object())->call(runtime, arguments);
}

}  // namespace tandem::tokenizer::jinja
