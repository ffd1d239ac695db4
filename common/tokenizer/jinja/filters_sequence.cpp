// Filters that make one value or a list of many.
#include <cmath>

#include "common/error.h"
#include "common/tokenizer/jinja/bound.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/expressions.h"
#include "common/tokenizer/jinja/getter.h"
#include "common/tokenizer/jinja/items.h"

namespace tandem::tokenizer::jinja {
namespace {

using R = Runtime&;
using V = const Value&;
using A = const Arguments&;

Value joined_by(R runtime, V value, A arguments) {
    const Bound bound("join", arguments, {"d", "attribute"});
    const std::string separator = bound.given(0) ? str(runtime, *bound[0]) : "";
    const Getter getter(runtime, bound[1], false);
    const IteratorPtr from = iterate(runtime, value);
    Text out(runtime);
    bool first = true;
    while (const auto item = from->next(runtime)) {
        if (!first) out += separator;
        first = false;
        print(runtime, out, getter(runtime, *item));
    }
    return out.take();
}

Value sort_filter(R runtime, V value, A arguments) {
    const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
    const SortKey key(runtime, bound[2], !bound.flag(1, false));
    return Value::list(
        runtime, sorted(
                     runtime, elements(runtime, value), [&](const Value& item) { return key(runtime, item); },
                     bound.integer(0, 0) != 0));
}

Value dictsort(R runtime, V value, A arguments) {
    const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
    if (value.dict() == nullptr) throw Error("dictsort needs a dictionary");
    const std::string_view by = bound.string(1, "key");
    if (by != "key" && by != "value") throw Error("dictsort: by must be \"key\" or \"value\"");
    List items = elements(runtime, call_method(runtime, value, "items", {}));
    const auto key = [&](const Value& item) {
        const Value& part = (*item.items())[by == "key" ? 0 : 1];
        return bound.flag(0, false) ? part : lowered(runtime, part);
    };
    return Value::list(runtime, sorted(runtime, std::move(items), key, bound.integer(2, 0) != 0));
}

Value groupby(R runtime, V value, A arguments) {
    const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
    const bool ignores_case = !bound.flag(2, false);
    const Getter key(runtime, bound[0], ignores_case, bound[1]), plain(runtime, bound[0], false, bound[1]);
    const List items =
        sorted(runtime, elements(runtime, value), [&](const Value& item) { return key(runtime, item); });
    Items groups(runtime), group(runtime);
    Value now;
    const auto close = [&] {
        if (group.empty()) return;
        const Value all = group.list();
        runtime.spend(2 * sizeof(Value));
        groups.add(Value::group(runtime, plain(runtime, (*all.items())[0]), all));
    };
    for (const Value& item : items) {
        const Value by = key(runtime, item);
        if (!group.empty() && !equal(runtime, by, now)) close();
        now = by;
        group.add(item);
    }
    close();
    return groups.list();
}

Value extreme(R runtime, V value, A arguments, int sign) {
    const Bound bound(sign < 0 ? "min" : "max", arguments, {"case_sensitive", "attribute"});
    const Getter key(runtime, bound[1], !bound.flag(0, false));
    const IteratorPtr from = iterate(runtime, value);
    std::optional<Value> best = from->next(runtime);
    if (!best) return undefined(runtime, "No aggregated item, sequence was empty.");
    Value best_key = key(runtime, *best);
    while (auto item = from->next(runtime)) {
        Value by = key(runtime, *item);
        if (order(runtime, by, best_key).value_or(0) * sign <= 0) continue;
        best = std::move(item);
        best_key = std::move(by);
    }
    return *best;
}

Value first_of(R runtime, V value, A arguments) {
    const Bound bound("first", arguments, {});
    const auto first = iterate(runtime, value)->next(runtime);
    return first ? *first : undefined(runtime, "No first item, sequence was empty.");
}

Value last_of(R runtime, V value, A arguments) {
    const Bound bound("last", arguments, {});
    if (value.as<Iterator>() != nullptr) throw Error("'generator' object is not reversible");
    if (value.items() != nullptr && !value.items()->empty()) return value.items()->back();
    const List all = elements(runtime, value);
    return all.empty() ? undefined(runtime, "No last item, sequence was empty.") : all.back();
}

Value sum_of(R runtime, V value, A arguments) {
    const Bound bound("sum", arguments, {"attribute", "start"});
    const Getter getter(runtime, bound[0], false);
    Value total = bound.given(1) ? *bound[1] : Value(0);
    if (total.string() != nullptr) throw Error("sum() can't sum strings [use ''.join(seq) instead]");
    const IteratorPtr from = iterate(runtime, value);
    while (const auto item = from->next(runtime)) {
        total = combine(runtime, Binary::add, total, getter(runtime, *item));
    }
    return total;
}

}  // namespace

Filters sequence_filters() {
    return {
        {"join", joined_by},
        {"sort", sort_filter},
        {"dictsort", dictsort},
        {"groupby", groupby},
        {"min", [](R r, V v, A a) { return extreme(r, v, a, -1); }},
        {"max", [](R r, V v, A a) { return extreme(r, v, a, 1); }},
        {"first", first_of},
        {"last", last_of},
        {"sum", sum_of},
    };
}

}  // namespace tandem::tokenizer::jinja
