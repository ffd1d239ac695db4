// value is test.
#include <map>

#include "common/error.h"
#include "common/tokenizer/jinja/bound.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/expressions.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {
namespace {

using R = Runtime&;
using V = const Value&;
using A = const Arguments&;
using Test = bool (*)(Runtime&, const Value&, const Arguments&);

const Value& argument(A arguments) {
    const Bound bound("test", arguments, {"/other"}, 1);
    return arguments.positional[0];
}

bool remains(R runtime, V value, V by, int rest) {
    return equal(runtime, combine(runtime, Binary::remainder, value, by), rest);
}

template <typename Holds>
bool ordered(R runtime, V a, V b, const Holds& holds) {
    const auto result = order(runtime, a, b);
    return result && holds(*result);
}

// Identity, as far as it does not depend on where Python keeps a value.
bool same(R runtime, V a, V b) {
    if (std::string_view(a.type_name()) != b.type_name()) return false;
    if (a.object() != nullptr) return a.object()->get() == b.object()->get();
    if (a.dict() != nullptr) return a.dict() == b.dict();
    if (a.items() != nullptr && !a.items()->empty()) return a.items() == b.items();
    if (!equal(runtime, a, b)) return false;
    const bool small = a.integer() && *a.integer() >= -5 && *a.integer() <= 256;
    if (a.is_none() || small || (a.string() != nullptr && a.string() == b.string())) return true;
    throw Error("sameas of equal values that may be two objects is not supported");
}

bool is_sequence(V value) {
    return value.is_undefined() || value.string() != nullptr || value.items() != nullptr ||
           value.dict() != nullptr || value.as<Range>() != nullptr;
}

bool is_lower_text(R runtime, V value) {
    return is_lower(runtime, str(runtime, value));
}
bool is_upper_text(R runtime, V value) {
    return is_upper(runtime, str(runtime, value));
}

// Those that take no argument.
const std::map<std::string, Test>& plain_tests() {
    static const std::map<std::string, Test> kTests = {
        {"defined", [](R, V v, A) { return !v.is_undefined(); }},
        {"undefined", [](R, V v, A) { return v.is_undefined(); }},
        {"none", [](R, V v, A) { return v.is_none(); }},
        {"string", [](R, V v, A) { return v.string() != nullptr; }},
        {"number", [](R, V v, A) { return v.is_number(); }},
        {"integer", [](R, V v, A) { return v.get<Integer>() != nullptr; }},
        {"float", [](R, V v, A) { return v.get<double>() != nullptr; }},
        {"boolean", [](R, V v, A) { return v.get<bool>() != nullptr; }},
        {"true", [](R, V v, A) { return v.get<bool>() != nullptr && *v.get<bool>(); }},
        {"false", [](R, V v, A) { return v.get<bool>() != nullptr && !*v.get<bool>(); }},
        {"mapping", [](R, V v, A) { return v.dict() != nullptr; }},
        {"iterable", [](R r, V v, A) { return is_iterable(r, v); }},
        {"sequence", [](R, V v, A) { return is_sequence(v); }},
        {"callable",
         [](R, V v, A) { return v.is_undefined() || (v.object() != nullptr && (*v.object())->callable()); }},
        {"escaped", [](R, V v, A) { return v.is_markup(); }},
        {"even", [](R r, V v, A) { return remains(r, v, 2, 0); }},
        {"odd", [](R r, V v, A) { return remains(r, v, 2, 1); }},
        {"lower", [](R r, V v, A) { return is_lower_text(r, v); }},
        {"upper", [](R r, V v, A) { return is_upper_text(r, v); }},
        {"filter", [](R, V v, A) { return v.string() != nullptr && is_filter(*v.string()); }},
        {"test", [](R, V v, A) { return v.string() != nullptr && is_test_name(*v.string()); }},
    };
    return kTests;
}

std::map<std::string, Test> comparisons() {
    const Test eq = [](R r, V v, A a) { return equal(r, v, argument(a)); };
    const Test ne = [](R r, V v, A a) { return !equal(r, v, argument(a)); };
    const Test lt = [](R r, V v, A a) { return ordered(r, v, argument(a), [](int x) { return x < 0; }); };
    const Test le = [](R r, V v, A a) { return ordered(r, v, argument(a), [](int x) { return x <= 0; }); };
    const Test gt = [](R r, V v, A a) { return ordered(r, v, argument(a), [](int x) { return x > 0; }); };
    const Test ge = [](R r, V v, A a) { return ordered(r, v, argument(a), [](int x) { return x >= 0; }); };
    return {{"eq", eq}, {"equalto", eq},  {"==", eq}, {"ne", ne},          {"!=", ne},
            {"lt", lt}, {"lessthan", lt}, {"<", lt},  {"le", le},          {"<=", le},
            {"gt", gt}, {">", gt},        {"ge", ge}, {"greaterthan", gt}, {">=", ge}};
}

const std::map<std::string, Test>& tests_of_two() {
    static const std::map<std::string, Test> kTests = [] {
        std::map<std::string, Test> all = comparisons();
        all["in"] = [](R r, V v, A a) { return contains(r, argument(a), v); };
        all["divisibleby"] = [](R r, V v, A a) { return remains(r, v, argument(a), 0); };
        all["sameas"] = [](R r, V v, A a) { return same(r, v, argument(a)); };
        return all;
    }();
    return kTests;
}

}  // namespace

bool is_test_name(const std::string& name) {
    return plain_tests().count(name) > 0 || tests_of_two().count(name) > 0;
}

bool apply_test(Runtime& runtime, const std::string& name, const Value& subject, const Arguments& arguments) {
    runtime.step(runtime.line());
    if (subject.string() != nullptr) runtime.work(subject.string()->size());
    if (const auto found = plain_tests().find(name); found != plain_tests().end()) {
        const Bound none(name, arguments, {});
        return found->second(runtime, subject, arguments);
    }
    const auto found = tests_of_two().find(name);
    if (found == tests_of_two().end()) throw Error("no test named '" + shown(name) + "'");
    return found->second(runtime, subject, arguments);
}

}  // namespace tandem::tokenizer::jinja
