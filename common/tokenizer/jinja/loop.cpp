// {% for %} and its variable `loop`.
#include "common/error.h"
#include "common/tokenizer/jinja/bound.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/statements.h"

namespace tandem::tokenizer::jinja {
namespace {

struct Loop : Object {
    Loop(const For& statement, FramePtr around, IteratorPtr from, std::optional<Integer> count, Integer level)
        : what(statement),
          scope(std::move(around)),
          items(std::move(from)),
          length_known(count),
          depth0(level) {
        holds(items->depth);
    }
    const char* type_name() const override { return "LoopContext"; }
    bool callable() const override { return true; }
    std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
    std::optional<Integer> length(Runtime& runtime) override;
    Value call(Runtime& runtime, const Arguments& given) override;
    void print(Runtime& runtime, Text& out) const override;
    std::optional<Value> next(Runtime& runtime);
    bool peek(Runtime& runtime);  // whether there is one more

    const For& what;
    FramePtr scope;  // around the statement
    IteratorPtr items;
    std::optional<Integer> length_known;
    Integer depth0, index0 = -1;
    std::optional<Value> before, current, after;
    std::optional<Value> last_changed;

  private:
    std::optional<Value> place(Runtime& runtime, const std::string& name);
};

std::optional<Value> Loop::next(Runtime& runtime) {
    std::optional<Value> one = after ? std::move(after) : items->next(runtime);
    after.reset();
    if (!one) return std::nullopt;
    ++index0;
    before = std::move(current);
    current = *one;
    return one;
}

bool Loop::peek(Runtime& runtime) {
    if (!after) after = items->next(runtime);
    return after.has_value();
}

// What has no length is taken to its end.
std::optional<Integer> Loop::length(Runtime& runtime) {
    if (length_known) return length_known;
    const Value rest = Value::list(runtime, elements(runtime, Value(std::shared_ptr<Object>(items))));
    length_known = static_cast<Integer>(rest.items()->size()) + index0 + 1 + (after ? 1 : 0);
    items = jinja::iterate(runtime, rest);
    return length_known;
}

std::optional<Value> Loop::place(Runtime& runtime, const std::string& name) {
    if (name == "index") return index0 + 1;
    if (name == "index0") return index0;
    if (name == "revindex") return *length(runtime) - index0;
    if (name == "revindex0") return *length(runtime) - index0 - 1;
    if (name == "first") return index0 == 0;
    if (name == "last") return !peek(runtime);
    if (name == "length") return *length(runtime);
    if (name == "depth") return depth0 + 1;
    if (name == "depth0") return depth0;
    return std::nullopt;
}

std::optional<Value> Loop::attribute(Runtime& runtime, const std::string& name) {
    if (auto found = place(runtime, name)) return found;
    if (name == "previtem") return index0 == 0 ? undefined(runtime, "there is no previous item") : *before;
    if (name == "nextitem") {
        return peek(runtime) ? *after : undefined(runtime, "there is no next item");
    }
    const auto self = std::static_pointer_cast<Loop>(shared_from_this());
    if (name == "cycle") {
        const auto cycle = [self](Runtime&, const Arguments& given) {
            if (given.positional.empty() || !given.named.empty()) throw Error("no items for cycling given");
            const auto count = static_cast<Integer>(given.positional.size());
            return given.positional[static_cast<std::size_t>(self->index0 % count)];
        };
        return function_of(runtime, name, cycle, depth);
    }
    if (name == "changed") {
        const auto changed = [self](Runtime& at, const Arguments& given) -> Value {
            if (!given.named.empty()) throw Error("changed() takes no named arguments");
            const Value now = Value::tuple(at, given.positional);
            if (self->last_changed && equal(at, *self->last_changed, now)) return false;
            self->last_changed = now;
            return true;
        };
        return function_of(runtime, name, changed, depth);
    }
    return std::nullopt;
}

Value Loop::call(Runtime& runtime, const Arguments& given) {
    if (!what.recursive) throw Error("the loop must be 'recursive' to be called");
    const Bound bound("loop", given, {"/iterable"}, 1);
    const Runtime::Level level(runtime);
    const auto kept = shared_from_this();
    return runtime.capture([&] { what.pass(runtime, scope, *bound[0], depth0 + 1); });
}

void Loop::print(Runtime& runtime, Text& out) const {
    const auto count =
        length_known ? length_known : std::const_pointer_cast<Object>(shared_from_this())->length(runtime);
    out += "<LoopContext " + to_text(index0 + 1) + "/" + to_text(*count) + ">";
}

}  // namespace

Flow For::run(Runtime& runtime) const {
    pass(runtime, runtime.frame(), over->evaluate(runtime), 0);
    return Flow::next;
}

void For::pass(Runtime& runtime, const FramePtr& frame, const Value& value, Integer depth) const {
    const FramePtr around = frame;  // of its own: the caller's may change
    IteratorPtr items = iterate(runtime, value);
    if (condition) {  // looked at when an item is asked for: the body may change what it reads
        items = make_iterator(runtime, items->depth, [this, around, all = items](Runtime& at) {
            std::optional<Value> one;
            for (bool wanted = false; !wanted && (one = all->next(at));) {
                at.in_frame(around, [&] {
                    target.assign(at, *one);
                    wanted = condition->evaluate(at).truthy();
                });
            }
            return one;
        });
    }
    const bool sized = !condition && value.as<Iterator>() == nullptr;
    const auto loop =
        make_object<Loop>(runtime, *this, around, items,
                          sized ? std::optional(jinja::length(runtime, value)) : std::nullopt, depth);
    struct Forgets {  // what it was last asked about might be itself
        ~Forgets() { loop.last_changed.reset(); }
        Loop& loop;
    } const forgets{*loop};
    static const Name kLoop("loop");
    const Value itself{std::shared_ptr<Object>(loop)};
    Flow flow = Flow::next;
    bool completed = false;  // a round that was neither broken off nor continued: as jinja2 sees it
    while (flow != Flow::leave_loop) {
        std::optional<Value> item = loop->next(runtime);
        if (!item) break;
        runtime.step(over->line());
        runtime.in_frame(around, [&] {
            runtime.set(kLoop, itself);
            target.assign(runtime, std::move(*item));
            flow = body.run(runtime);
        });
        completed = completed || flow == Flow::next;
    }
    if (!completed) runtime.in_frame(around, [&] { otherwise.run(runtime); });
}

}  // namespace tandem::tokenizer::jinja
