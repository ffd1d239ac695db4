// Filters that give a generator: items are taken when something asks for them, and once.
#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/jinja/bound.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/getter.h"
#include "common/tokenizer/jinja/items.h"

namespace tandem::tokenizer::jinja {
namespace {

using R = Runtime&;
using V = const Value&;
using A = const Arguments&;
using Next = std::function<std::optional<Value>(Runtime&)>;

// A generator whose first step makes the rest: what is wrong with the arguments is said only then, as in
// Python. It holds the arguments, too.
Value generator(R made_by, V over, A arguments, std::function<Next(Runtime&)> start) {
    constexpr std::size_t kOfClosures = 256;
    made_by.spend(kOfClosures + 3 * sizeof(Value) * (arguments.positional.size() + arguments.named.size()));
    int depth = over.depth();
    for (const Value& one : arguments.positional) depth = std::max(depth, one.depth());
    for (const auto& [name, one] : arguments.named) depth = std::max(depth, one.depth());
    const IteratorPtr made =
        make_iterator(made_by, depth, [start = std::move(start), next = Next()](Runtime& runtime) mutable {
            if (!next) next = start(runtime);
            return next(runtime);
        });
    return std::shared_ptr<Object>(made);
}

std::optional<Value> nothing(Runtime&) {
    return std::nullopt;
}

Arguments behind(const Arguments& arguments, std::size_t first) {
    Arguments rest;
    rest.named = arguments.named;
    for (std::size_t i = first; i < arguments.positional.size(); ++i) {
        rest.positional.push_back(arguments.positional[i]);
    }
    return rest;
}

// attribute=…, default=…, or a filter with its arguments.
std::function<Value(Runtime&, const Value&)> mapping(R made_by, A arguments) {
    const bool by_attribute =
        arguments.positional.empty() && std::any_of(arguments.named.begin(), arguments.named.end(),
                                                    [](const auto& one) { return one.first == "attribute"; });
    if (by_attribute) {
        const Bound bound("map", arguments, {"attribute", "default"});
        return Getter(made_by, bound[0], false, bound[1]);
    }
    if (arguments.positional.empty() || arguments.positional[0].string() == nullptr) {
        throw Error("map needs attribute=… or the name of a filter");
    }
    return [name = *arguments.positional[0].string(), rest = behind(arguments, 1)](
               Runtime& runtime, const Value& item) { return apply_filter(runtime, name, item, rest); };
}

Value map_filter(R r, V value, A arguments) {
    return generator(r, value, arguments, [value, arguments](Runtime& runtime) -> Next {
        if (!value.truthy()) return nothing;
        return [each = mapping(runtime, arguments),
                from = iterate(runtime, value)](Runtime& at) -> std::optional<Value> {
            const auto item = from->next(at);
            return item ? std::optional(each(at, *item)) : std::nullopt;
        };
    });
}

// select, reject, selectattr, rejectattr: items that pass a test, or whose attribute does.
std::function<bool(Runtime&, const Value&)> choice(R made_by, A arguments, bool attribute) {
    if (attribute && arguments.positional.empty()) throw Error("selectattr and rejectattr need an attribute");
    const std::size_t first = attribute ? 1 : 0;
    const Getter getter(made_by, attribute ? &arguments.positional[0] : nullptr, false);
    if (arguments.positional.size() <= first) {
        return [getter](Runtime& runtime, const Value& item) { return getter(runtime, item).truthy(); };
    }
    const Value& test = arguments.positional[first];
    if (test.string() == nullptr) throw Error("the name of a test must be a string");
    return [getter, name = *test.string(), rest = behind(arguments, first + 1)](Runtime& runtime,
                                                                                const Value& item) {
        return apply_test(runtime, name, getter(runtime, item), rest);
    };
}

Value choose(R r, V value, A arguments, bool attribute, bool wanted) {
    return generator(r, value, arguments, [value, arguments, attribute, wanted](Runtime& runtime) -> Next {
        if (!value.truthy()) return nothing;
        return [passes = choice(runtime, arguments, attribute), from = iterate(runtime, value),
                wanted](Runtime& at) {
            auto item = from->next(at);
            while (item && passes(at, *item) != wanted) item = from->next(at);
            return item;
        };
    });
}

Value unique_filter(R r, V value, A arguments) {
    const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
    return generator(r, value, arguments,
                     [value, key = Getter(r, bound[1], !bound.flag(0, false))](Runtime& runtime) -> Next {
                         auto seen = std::make_shared<Dict>();
                         return [seen, key, from = iterate(runtime, value)](Runtime& at) {
                             for (;;) {
                                 auto item = from->next(at);
                                 if (!item) return item;
                                 const Value by = key(at, *item);
                                 if (seen->find(at, by) != nullptr) continue;
                                 seen->put(at, by, true);
                                 return item;
                             }
                         };
                     });
}

Value batch(R r, V value, A arguments) {
    const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
    const Integer size = bound.integer(0, 1);
    const std::optional<Value> fill = bound.is_none(1) ? std::nullopt : std::optional(*bound[1]);
    return generator(r, value, arguments, [value, size, fill](Runtime& runtime) -> Next {
        auto held = std::make_shared<std::optional<Value>>();  // the first of the next batch
        return [size, fill, held, from = iterate(runtime, value)](Runtime& at) -> std::optional<Value> {
            Items items(at);
            if (*held) items.add(**held);
            held->reset();
            while (auto item = from->next(at)) {
                if (static_cast<Integer>(items.size()) == size) {
                    *held = std::move(*item);
                    return items.list();
                }
                items.add(std::move(*item));
            }
            if (items.empty()) return std::nullopt;
            while (fill && static_cast<Integer>(items.size()) < size) items.add(*fill);
            return items.list();
        };
    });
}

// One of `count` parts of all; the first ones are longer by one where they cannot be even.
List part_of(const List& all, std::size_t count, std::size_t i, const std::optional<Value>& fill) {
    const std::size_t each = all.size() / count, longer = all.size() % count;
    const std::size_t begin = i * each + std::min(i, longer);
    const std::size_t end = begin + each + (i < longer ? 1 : 0);
    List part(all.begin() + static_cast<std::ptrdiff_t>(begin),
              all.begin() + static_cast<std::ptrdiff_t>(end));
    if (fill && i >= longer) part.push_back(*fill);
    return part;
}

Value slices(R r, V value, A arguments) {
    const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
    const Integer count = bound.integer(0, 1);
    const std::optional<Value> fill = bound.is_none(1) ? std::nullopt : std::optional(*bound[1]);
    return generator(r, value, arguments, [value, count, fill](Runtime& runtime) -> Next {
        auto all = std::make_shared<List>(elements(runtime, value));
        if (count == 0) throw Error("division by zero");
        return [all, count, fill, i = Integer{0}](Runtime& at) mutable -> std::optional<Value> {
            if (i >= count) return std::nullopt;
            List part = part_of(*all, static_cast<std::size_t>(count), static_cast<std::size_t>(i++), fill);
            at.spend((part.size() + 1) * sizeof(Value));
            return Value::list(at, std::move(part));
        };
    });
}

Value items_filter(R r, V value, A arguments) {
    const Bound bound("items", arguments, {});
    return generator(r, value, arguments, [value](Runtime& runtime) -> Next {
        if (value.is_undefined()) return nothing;
        if (value.dict() == nullptr) throw Error("items needs a dictionary");
        return [from = make_object<View>(runtime, value, View::Of::items)->iterate(runtime)](Runtime& at) {
            return from->next(at);
        };
    });
}

// A string backwards; what Python can only read once becomes a list, anything else an iterator.
Value reverse_filter(R runtime, V value, A arguments) {
    const Bound bound("reverse", arguments, {});
    if (value.string() != nullptr) return slice(runtime, value, Value::None{}, Value::None{}, -1);
    List all = elements(runtime, value);
    std::reverse(all.begin(), all.end());
    Value list = Value::list(runtime, std::move(all));
    if (value.as<Iterator>() != nullptr) return list;
    return std::shared_ptr<Object>(iterate(runtime, list));
}

}  // namespace

Filters lazy_filters() {
    return {
        {"map", map_filter},
        {"select", [](R r, V v, A a) { return choose(r, v, a, false, true); }},
        {"reject", [](R r, V v, A a) { return choose(r, v, a, false, false); }},
        {"selectattr", [](R r, V v, A a) { return choose(r, v, a, true, true); }},
        {"rejectattr", [](R r, V v, A a) { return choose(r, v, a, true, false); }},
        {"unique", unique_filter},
        {"batch", batch},
        {"slice", slices},
        {"items", items_filter},
        {"reverse", reverse_filter},
    };
}

}  // namespace tandem::tokenizer::jinja
