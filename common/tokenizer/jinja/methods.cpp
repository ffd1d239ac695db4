// Methods of lists, dictionaries, numbers and ranges. Those that change a value are absent, as in jinja2's
// immutable sandbox.
#include <algorithm>
#include <bit>
#include <cmath>

#include "common/error.h"
#include "common/tokenizer/jinja/bound.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* one) { return name == one; });
}

Value call_dict(Runtime& runtime, const Value& dict, const std::string& name, const Arguments& arguments) {
    if (name == "get") {
        const Bound bound(name, arguments, {"/key", "/default"}, 1);
        const Value* found = dict.dict()->find(runtime, *bound[0]);
        return found != nullptr ? *found : bound.given(1) ? *bound[1] : Value(Value::None{});
    }
    const Bound none(name, arguments, {});
    if (name == "copy") return dict;
    const auto of = name == "keys" ? View::Of::keys : name == "values" ? View::Of::values : View::Of::items;
    return std::shared_ptr<Object>(make_object<View>(runtime, dict, of));
}

// index and count of a list, tuple or range.
Value call_sequence(Runtime& runtime, const Value& list, const std::string& name,
                    const Arguments& arguments) {
    if (name == "copy") {
        const Bound none(name, arguments, {});
        return list;
    }
    const bool bounds = name == "index" && list.items() != nullptr;
    const Bound bound = bounds ? Bound(name, arguments, {"/value", "/start", "/stop"}, 1)
                               : Bound(name, arguments, {"/value"}, 1);
    const Integer size = length(runtime, list);
    const auto place = [&](std::size_t i, Integer otherwise) {
        const Integer at = bounds ? bound.integer(i, otherwise) : otherwise;
        return at < 0 ? std::max<Integer>(at + size, 0) : std::min(at, size);
    };
    Integer count = 0;
    const Integer end = place(2, size);
    for (Integer i = place(1, 0); i < end; ++i) {
        if (!equal(runtime, subscript(runtime, list, i), *bound[0])) continue;
        if (name == "index") return i;
        ++count;
    }
    if (name == "index") throw Error(shown(repr(runtime, *bound[0])) + " is not in list");
    return count;
}

Value call_number(const Value& number, const std::string& name, const Arguments& arguments) {
    const Bound none(name, arguments, {});
    if (name == "is_integer")
        return std::isfinite(*number.number()) && *number.number() == std::floor(*number.number());
    if (name == "conjugate") return number.integer() ? Value(*number.integer()) : number;
    const Integer value = *number.integer();
    const Integer size = value < 0 ? compute(Whole::subtract, 0, value) : value;
    const auto high = static_cast<std::uint64_t>(size >> 64), low = static_cast<std::uint64_t>(size);
    if (name == "bit_count") return std::popcount(high) + std::popcount(low);
    return high != 0 ? 64 + std::bit_width(high) : std::bit_width(low);
}

bool is_number_method(const Value& number, const std::string& name) {
    if (name == "conjugate") return true;
    return number.integer() ? is_one_of(name, {"bit_length", "bit_count"}) : name == "is_integer";
}

}  // namespace

bool has_method(const Value& object, const std::string& name) {
    if (object.string() != nullptr) return is_string_method(object, name);
    if (object.dict() != nullptr) return is_one_of(name, {"items", "keys", "values", "get", "copy"});
    if (object.items() != nullptr)
        return name == "index" || name == "count" || (name == "copy" && !object.is_tuple());
    if (object.as<Range>() != nullptr) return name == "index" || name == "count";
    return object.is_number() && is_number_method(object, name);
}

Value call_method(Runtime& runtime, const Value& object, const std::string& name,
                  const Arguments& arguments) {
    if (object.string() != nullptr) return call_string_method(runtime, object, name, arguments);
    if (object.dict() != nullptr) return call_dict(runtime, object, name, arguments);
    if (object.is_number()) return call_number(object, name, arguments);
    return call_sequence(runtime, object, name, arguments);
}

}  // namespace tandem::tokenizer::jinja
