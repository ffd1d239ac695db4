// Values with a state or a behaviour of their own: what is iterated once, what can be called, namespaces,
// ranges, views.
#pragma once

#include "common/tokenizer/jinja/dict.h"
#include "common/tokenizer/jinja/text.h"

namespace tandem::tokenizer::jinja {

struct Iterator;
using IteratorPtr = std::shared_ptr<Iterator>;

struct Object : std::enable_shared_from_this<Object> {
    virtual ~Object() = default;
    virtual const char* type_name() const = 0;
    virtual bool truthy() const { return true; }
    virtual std::optional<Value> attribute(Runtime&, const std::string&) { return std::nullopt; }
    virtual std::optional<Integer> length(Runtime&) { return std::nullopt; }
    virtual IteratorPtr iterate(Runtime&) { return nullptr; }  // nullptr: not iterable
    virtual bool callable() const { return false; }
    virtual Value call(Runtime& runtime, const Arguments& arguments);
    // Called once: how deep what it holds is nested. Throws Error: too deep.
    void holds(int depth_of_parts);
    int depth = 0;
    // Python prints an address for most objects, another one each time: refused.
    virtual void print(Runtime& runtime, Text& out) const;
};

// What is taken one by one, and only once: a generator of Python's.
struct Iterator : Object {
    virtual std::optional<Value> next(Runtime& runtime) = 0;
    const char* type_name() const override { return "generator"; }
    IteratorPtr iterate(Runtime&) override;
};

// An iterator of what `next` gives, which takes from something of this depth.
IteratorPtr make_iterator(Runtime& runtime, int depth, std::function<std::optional<Value>(Runtime&)> next);

// Throws Error: not iterable. An undefined value has no elements.
IteratorPtr iterate(Runtime& runtime, const Value& value);
// All elements, charged.
List elements(Runtime& runtime, const Value& value);
bool is_iterable(Runtime& runtime, const Value& value);

struct Callable : Object {
    Callable(std::string called, Function function) : name(std::move(called)), run(std::move(function)) {}
    const char* type_name() const override { return "function"; }
    bool callable() const override { return true; }
    Value call(Runtime& runtime, const Arguments& arguments) override { return run(runtime, arguments); }
    std::string name;
    Function run;
};

// A value that runs `function`. depth_of_parts: of what that holds.
Value function_of(Runtime& runtime, const std::string& name, Function function, int depth_of_parts = 0);

struct Namespace : Object {
    const char* type_name() const override { return "Namespace"; }
    std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
    void print(Runtime& runtime, Text& out) const override;
    // Throws Error: names that begin with an underscore, as transformers does.
    void set(Runtime& runtime, const Name& name, Value value);
    Dict entries;
};

struct Range : Object {
    Range(Integer from, Integer to, Integer by) : start(from), stop(to), step(by) {}
    const char* type_name() const override { return "range"; }
    bool truthy() const override { return count() != 0; }
    std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
    std::optional<Integer> length(Runtime&) override { return count(); }
    IteratorPtr iterate(Runtime& runtime) override;
    void print(Runtime& runtime, Text& out) const override;
    Integer count() const;
    Integer at(Integer index) const { return start + index * step; }
    bool contains(Integer value) const;
    Integer start, stop, step;
};

// dict.keys(), values(), items()
struct View : Object {
    enum class Of : std::uint8_t { keys, values, items };
    View(Value of_dict, Of of_part) : dict(std::move(of_dict)), part(of_part) { holds(dict.depth()); }
    const char* type_name() const override;
    bool truthy() const override { return dict.dict()->size() > 0; }
    std::optional<Integer> length(Runtime&) override { return static_cast<Integer>(dict.dict()->size()); }
    IteratorPtr iterate(Runtime& runtime) override;
    void print(Runtime& runtime, Text& out) const override;
    Value at(Runtime& runtime, std::size_t i) const;
    Value dict;
    Of part;
};

}  // namespace tandem::tokenizer::jinja
