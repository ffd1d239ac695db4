// value is test.
#include <map>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

using Test = bool (*)(Runtime&, const Value&, const Arguments&);
using R = Runtime&;
using V = const Value&;
using A = const Arguments&;

const Value& argument(const Arguments& arguments) {
    if (arguments.positional.empty()) throw Error("this test needs an argument");
    return arguments.positional[0];
}

bool divides(V value, std::int64_t by, std::int64_t rest) {
    if (!value.integer() || by == 0) throw Error("this test needs integers");
    if (by == -1) return rest == 0;
    return *value.integer() % by == rest;
}

int ordered(R runtime, V a, V b) {
    const auto result = order(runtime, a, b);
    if (!result) throw Error(fmt::format("'{}' and '{}' have no order", a.type_name(), b.type_name()));
    return *result;
}

bool is_container(V value) {
    return value.string() != nullptr || value.items() != nullptr ||
           (value.space() == nullptr && value.entries() != nullptr);
}

const std::map<std::string, Test>& tests() {
    static const std::map<std::string, Test> kTests = {
        {"defined", [](R, V v, A) { return !v.is_undefined(); }},
        {"undefined", [](R, V v, A) { return v.is_undefined(); }},
        {"none", [](R, V v, A) { return v.is_none(); }},
        {"string", [](R, V v, A) { return v.string() != nullptr; }},
        {"number", [](R, V v, A) { return v.number().has_value(); }},
        {"integer", [](R, V v, A) { return v.get<std::int64_t>() != nullptr; }},
        {"float", [](R, V v, A) { return v.get<double>() != nullptr; }},
        {"boolean", [](R, V v, A) { return v.get<bool>() != nullptr; }},
        {"true", [](R, V v, A) { return v.get<bool>() != nullptr && *v.get<bool>(); }},
        {"false", [](R, V v, A) { return v.get<bool>() != nullptr && !*v.get<bool>(); }},
        {"mapping", [](R, V v, A) { return v.space() == nullptr && v.entries() != nullptr; }},
        {"iterable", [](R, V v, A) { return v.is_undefined() || is_container(v); }},
        {"sequence", [](R, V v, A) { return is_container(v); }},
        {"callable", [](R, V v, A) { return v.function() != nullptr; }},
        {"in", [](R r, V v, A a) { return contains(r, argument(a), v); }},
        {"even", [](R, V v, A) { return divides(v, 2, 0); }},
        {"odd", [](R, V v, A) { return !divides(v, 2, 0); }},
        {"divisibleby", [](R, V v, A a) { return divides(v, argument(a).integer().value_or(0), 0); }},
        {"sameas",
         [](R r, V v, A a) {
             return std::string_view(v.type_name()) == argument(a).type_name() && equal(r, v, argument(a));
         }},
        {"lower", [](R, V v, A) { return lower(v.str()) == v.str() && upper(v.str()) != v.str(); }},
        {"upper", [](R, V v, A) { return upper(v.str()) == v.str() && lower(v.str()) != v.str(); }},
        {"eq", [](R r, V v, A a) { return equal(r, v, argument(a)); }},
        {"equalto", [](R r, V v, A a) { return equal(r, v, argument(a)); }},
        {"ne", [](R r, V v, A a) { return !equal(r, v, argument(a)); }},
        {"lt", [](R r, V v, A a) { return ordered(r, v, argument(a)) < 0; }},
        {"lessthan", [](R r, V v, A a) { return ordered(r, v, argument(a)) < 0; }},
        {"le", [](R r, V v, A a) { return ordered(r, v, argument(a)) <= 0; }},
        {"gt", [](R r, V v, A a) { return ordered(r, v, argument(a)) > 0; }},
        {"greaterthan", [](R r, V v, A a) { return ordered(r, v, argument(a)) > 0; }},
        {"ge", [](R r, V v, A a) { return ordered(r, v, argument(a)) >= 0; }},
    };
    return kTests;
}

}  // namespace

bool is_test_name(const std::string& name) {
    return tests().count(name) > 0;
}

bool apply_test(Runtime& runtime, const std::string& name, const Value& subject, const Arguments& arguments) {
    const auto found = tests().find(name);
    if (found == tests().end()) throw Error("no test named '" + name + "'");
    if (subject.string() != nullptr) runtime.work(subject.string()->size());
    return found->second(runtime, subject, arguments);
}

}  // namespace tandem::tokenizer::jinja
